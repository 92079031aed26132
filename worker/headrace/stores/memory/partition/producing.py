"""Inserting jobs into one partition in memory."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.errors import QueueFull, QueueHeld
from headrace.stores.memory.partition.contents import TIMES, Contents
from headrace.stores.protocols.producing import Accepted, Moved, NewJob, Once


class ProducingRules(Contents):
    """Steps of producers."""

    def enqueue(
        self, partitions: int, nonce: bytes, jobs: Sequence[NewJob], now: int, once: Once | None = None
    ) -> Accepted | Moved:
        """Insert the jobs whose ids are not live."""
        if self.state != "active":
            return Moved(self.state, self.successor)
        if partitions != self.partitions:
            return Moved("resized", None)
        if self._nonces.knows(nonce, now):
            self._nonces.heard_again(now)
            return Accepted(frozenset())
        if not jobs:
            return Accepted(frozenset())
        if once is not None and once.number <= self._applied.get(once.series, 0):
            return Accepted(frozenset(range(len(jobs))))
        existing = set()
        fresh = len({key[1:] for key, _, _ in jobs} - self._jobs.keys())
        limits = self._limiter.limits
        if fresh and limits.shut:
            raise QueueHeld(self.ref.queue)
        if fresh and limits.length is not None and len(self._jobs) + fresh > limits.length:
            raise QueueFull(self.ref.queue, self.ref.label, len(self._jobs), limits.length)
        for index, (key, when, body) in enumerate(jobs):
            if key[1:] in self._jobs:
                existing.add(index)
                continue
            run_at = when if when > 0 else now - when
            self._jobs[key[1:]] = TIMES.pack(now, run_at) + body
            self._enqueued += 1
            if run_at <= now:
                self._arrived += 1
                self._push(key)
            else:
                self._wait(self._scheduled, run_at, key)
        if len(existing) < len(jobs):
            self._rouse()
        self._nonces.remember(nonce, now)
        if once is not None:
            self._applied[once.series] = once.number
        return Accepted(frozenset(existing))

    def knows(self, key: bytes, nonce: bytes, now: int) -> bool:
        """Whether the id is live here, or the call of ``nonce`` (b"" for none) was applied."""
        return key[1:] in self._jobs or self._nonces.knows(nonce, now)
