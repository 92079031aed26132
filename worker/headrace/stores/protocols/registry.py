"""Which workers there are, what each says of itself, and which are to claim nothing more."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol


class Beat(NamedTuple):
    """What a worker says of itself every few seconds.

    ``pod`` and ``node``: where it runs, "" where it is not told. ``in_flight``: jobs of this queue whose lease it
    holds, ``slots``: handlers that it may run at the same time, for all its queues. ``candidate``: it may
    lead the queue. ``stands_by_till``: until when it takes no job of this queue, as it was told (server's clock, ms);
    0 if it takes some.
    """

    host: str = ""
    pid: int = 0
    pod: str = ""
    node: str = ""
    slots: int = 0
    in_flight: int = 0
    candidate: bool = False
    stands_by_till: int = 0

    @property
    def place(self) -> str:
        """Where it runs, for people, as far as it has said: "Pod a, node b, process 7"."""
        where = [f"Pod {self.pod}"] if self.pod else [f"host {self.host}"] if self.host else []
        where += [f"node {self.node}"] if self.node else []
        where += [f"process {self.pid}"] if self.pid else []
        return ", ".join(where)


class WorkerEntry(NamedTuple):
    """A worker in the registry. ``heard_ms``: since it was last heard of.

    ``stop_ms``: for how long it is still to claim nothing, None if it may. ``gone``: it has stopped, or was not heard
    of for a minute. ``stands_by_ms``: for how long it still claims nothing by its own word; 0 if it has not said so. Of
    one that has, ``in_flight`` has not grown since, unless the order was taken back.
    """

    worker: str
    heard_ms: int
    beat: Beat
    stop_ms: int | None = None
    gone: bool = False
    stands_by_ms: int = 0


class RegistrySteps(Protocol):
    """Steps on the registry of a queue. Workers enter it with `tick` and leave it with `leave`."""

    async def workers(self, queue: str) -> list[WorkerEntry]:
        """Return the workers that were heard of within a minute, at most 1,000, those heard of last first."""
        ...

    async def about_workers(self, queue: str, workers: Sequence[str]) -> list[WorkerEntry]:
        """Return what is known of at most 1,000 workers, for an hour also of those that are gone."""
        ...

    async def stop_claiming(self, queue: str, workers: Sequence[str], ttl_ms: int) -> None:
        """Let workers (at most 1,000) claim nothing from this queue for ``ttl_ms``; 0: let them claim again.

        They learn of it with their next tick, within 5 s, hand back what has not begun, and go on with the rest. If
        nobody says it again they claim again, so that whoever says it may die.
        """
        ...
