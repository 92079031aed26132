"""Counts what this worker does, and adds it to the statistics of its queues: one call a second at most, none if idle.

Counting costs nothing per job: claims and outcomes are counted by the batch, and only some runs are timed.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any, cast

from headrace.errors import not_applied
from headrace.stores.base import Store
from headrace.worker.metrics import Metrics, Outcome
from headrace.worker.outage import Reachability

if TYPE_CHECKING:
    from headrace.worker.leases import Execution

FLUSH_SECONDS = 1.0


class Tally:
    """What was counted since it was taken last, by queue and by the names of `headrace.stores.base.WORK`.

    ``noticed`` is called with the queue whenever something is counted.
    """

    def __init__(self, noticed: Callable[[str], None] = lambda queue: None) -> None:
        self._noticed = noticed
        self._counts: dict[str, Counter[str]] = {}
        self._seconds: dict[str, float] = {}
        self.changed = asyncio.Event()
        """Set while there is anything to take."""

    def add(self, queue: str, name: str, number: int) -> None:
        """Count ``number`` more."""
        counts = self._counts.get(queue)
        if counts is None:
            counts = self._counts[queue] = Counter()
        counts[name] += number
        self.changed.set()
        self._noticed(queue)

    def timed(self, queue: str, seconds: float) -> None:
        """Count a run that was timed."""
        whole, rest = divmod((self._seconds.get(queue, 0.0) + seconds) * 1000, 1.0)
        self._seconds[queue] = rest / 1000  # a run may take less than a millisecond
        self.add(queue, "service_jobs", 1)
        self.add(queue, "service_ms", int(whole))

    def take(self) -> dict[str, Counter[str]]:
        """Return what was counted, and begin anew."""
        taken, self._counts = self._counts, {}
        self.changed.clear()
        return taken

    def put_back(self, queue: str, counts: Counter[str]) -> None:
        """Count again what was taken, but not sent."""
        self._counts.setdefault(queue, Counter()).update(counts)
        self.changed.set()


class _TalliedMetrics:
    """Everything goes to the metrics themselves; claims and outcomes are counted as well."""

    def __init__(self, metrics: Metrics, tally: Tally) -> None:
        self._metrics = metrics
        self._add = tally.add

    def __getattr__(self, name: str) -> Any:
        return getattr(self._metrics, name)

    def claimed(self, queue: str, runs: Collection[Execution]) -> None:
        """Count the jobs of a claim."""
        self._add(queue, "claimed", len(runs))
        self._metrics.claimed(queue, runs)

    def poisoned(self, queue: str, jobs: int) -> None:
        """Count jobs that are dead because their worker was lost once too often: no run of them has ended."""
        self._add(queue, "dead", jobs)
        self._metrics.poisoned(queue, jobs)

    def settled(self, queue: str, outcome: Outcome, runs: Sequence[Execution]) -> None:
        """Count jobs whose outcome the store has confirmed."""
        self._add(queue, outcome, len(runs))
        self._metrics.settled(queue, outcome, runs)


def tallied(metrics: Metrics, tally: Tally) -> Metrics:
    """Return the metrics with claims and outcomes counted in ``tally`` as well."""
    return cast(Metrics, _TalliedMetrics(metrics, tally))


class Reporter:
    """Sends a tally to the store. ``pause``: waits so many seconds."""

    def __init__(
        self,
        tally: Tally,
        store: Store,
        reachability: Reachability,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._tally = tally
        self._store = store
        self._reachability = reachability
        self._pause = pause

    async def run(self) -> None:
        """Send what was counted, a second after it began to be, until cancelled."""
        while True:
            await self._tally.changed.wait()
            await self._pause(FLUSH_SECONDS)
            if self._reachability.down_since is None:  # else it would be sent in vain, and not be counted
                await self.send()

    async def send(self) -> None:
        """Send what was counted. What the store did not answer may be applied, so it is not sent again."""
        taken = self._tally.take()
        await asyncio.gather(*(self._send(queue, counts) for queue, counts in taken.items()))

    async def _send(self, queue: str, counts: Counter[str]) -> None:
        try:
            await self._store.count_work(queue, counts)
        except Exception as error:
            if not_applied(error):
                self._tally.put_back(queue, counts)
            self._reachability.failed(f"adding to the statistics of queue {queue}", error)
