"""Somebody with redis-cli, who writes into keys by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headrace.stores.redis.kinds import QUEUE_KINDS, SHARED_KINDS
from tests.conformance.steps import QUEUE

FOREIGN = b"\xff foreign"
JUNK = b"\xc1 nothing of ours, and long enough for what stands at the beginning of a record"


class Hand:
    """Somebody at one server or in a Cluster, who names keys as docs/protocol.md does."""

    def __init__(self, node: Callable[[str], Any], prefix: str, queue: str = QUEUE) -> None:
        self._node = node
        self._prefix = prefix
        self._queue = queue

    def key(self, name: str) -> str:
        """The key of the partition v1:0, of the queue or of all queues that is called so."""
        tags = {**dict.fromkeys(SHARED_KINDS, ""), **dict.fromkeys(QUEUE_KINDS, f":{self._queue}")}
        return f"{{{self._prefix}{tags.get(name, f':{self._queue}:1:0')}}}:{name}"

    def __call__(self, command: str, name: str, *arguments: object) -> Any:
        with self._node(self.key(name)) as client:
            return client.execute_command(command, self.key(name), *arguments)
