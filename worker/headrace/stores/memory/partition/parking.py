"""Jobs of one partition in memory that wait for a worker that knows their type."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.stores.bounds import MAX_UNPARK, number_within
from headrace.stores.memory.partition.changes import Changes
from headrace.stores.memory.partition.contents import TIMES, Contents
from headrace.stores.protocols.parking import (
    ParkedLimits,
    TrimmedParked,
    Unknown,
    no_worker_knows,
    too_many_wait,
    waited_too_long,
)


class ParkingRules(Contents):
    """Steps on parked jobs."""

    def park(self, jobs: Sequence[Unknown], now: int) -> list[int]:
        """Let jobs wait by type; the indexes of the refused ones."""
        refused = []
        for index, (key, token, kind) in enumerate(jobs):
            if self._leases.end(key, token):
                if (facts := self._changes.get(key[1:])) and facts.suspicion:
                    facts.suspicion = 0  # not run, and it comes back through the ready lanes
                    self._note(facts, "parked", now, token)
                self._parked.add(kind, key)
            else:
                refused.append(index)
        self._reopen(len(jobs) - len(refused))
        return refused

    def unpark(self, types: Sequence[str]) -> int:
        """Make at most MAX_UNPARK parked jobs of these types ready; the number of them."""
        freed = 0
        for kind in types:
            for key in (taken := self._parked.take(kind, MAX_UNPARK - freed)):
                self._push(key)
            freed += len(taken)
        return freed

    def bury_parked(self, kind: str, limit: int, now: int) -> int:
        """Make at most ``limit`` parked jobs of a type dead letters; the number of them."""
        page = self._parked.of(kind)[:limit]
        for key in (taken := self._parked.take(kind, number_within([self._weight(key) for key in page]))):
            self._give_up(key, no_worker_knows(kind), now)
        self._trim_after(len(taken))
        return len(taken)

    def trim_parked(self, kind: str, limits: ParkedLimits, after: bytes, limit: int, now: int) -> TrimmedParked:
        """Make parked jobs of a type that are beyond the limits dead letters, of ``limit`` jobs behind ``after``."""
        waiting = self._parked.of(kind)
        over = 0 if limits.jobs is None else len(waiting) - limits.jobs
        page = [key for key in waiting if key > after][:limit] if over > 0 or limits.age_ms is not None else []
        looked = page[: number_within([self._weight(key) for key in page])]
        dead = 0
        for key in looked:
            due = max(TIMES.unpack_from(self._jobs[key[1:]]))
            old = limits.age_ms is not None and due + limits.age_ms < now
            if old or dead < over:
                self._parked.remove(key)
                self._give_up(key, waited_too_long(kind, limits) if old else too_many_wait(kind, limits), now)
                dead += 1
        self._trim_after(dead)
        return TrimmedParked(dead, looked[-1] if len(page) == limit or len(looked) < len(page) else b"")

    def _give_up(self, key: bytes, reason: str, now: int) -> None:
        changes = self._changes.setdefault(key[1:], Changes())
        changes.suspicion = 0
        self._note(changes, "unknown type", now, b"", reason)
        self._bury(key, now)

    def parked(self) -> dict[str, int]:
        """Return how many jobs wait for each type."""
        return self._parked.sizes(100)
