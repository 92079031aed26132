"""Which partition is worth the next claim: hints per queue, taken in turn so that no queue starves another."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Iterable

from headrace.topology import PartitionRef

MAX_HINTS = 64


class QueueHints:
    """Hints of one queue, oldest first, without repetition.

    ``calls`` counts claims whose answer may bring a hint; ``dry`` is set while nothing is known and nothing is coming,
    which is when it makes sense to wait for a wake-up.
    """

    def __init__(self, queue: str) -> None:
        self.queue = queue
        self.refs: OrderedDict[PartitionRef, None] = OrderedDict()
        self.calls = 0
        self.dry = asyncio.Event()
        self.dry.set()

    def add(self, ref: PartitionRef) -> None:
        """Note a partition; a repetition keeps its place."""
        if ref not in self.refs and len(self.refs) < MAX_HINTS:
            self.refs[ref] = None
        self.settle()

    def settle(self) -> None:
        """Recompute ``dry``."""
        if self.refs or self.calls:
            self.dry.clear()
        else:
            self.dry.set()


class Rotation:
    """The hints of all queues of a worker."""

    def __init__(self, queues: Iterable[str]) -> None:
        self.queues = {queue: QueueHints(queue) for queue in queues}
        self._order = deque(self.queues.values())

    def __bool__(self) -> bool:
        return any(hints.refs for hints in self._order)

    def take(self) -> PartitionRef | None:
        """Take the oldest hint of the queue whose turn it is."""
        for _ in range(len(self._order)):
            hints = self._order[0]
            self._order.rotate(-1)
            if hints.refs:
                ref, _ = hints.refs.popitem(last=False)
                return ref
        return None
