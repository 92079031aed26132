"""Proving that every job of one partition in memory is in one place."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

from headrace.stores.memory.partition.changes import Changes
from headrace.stores.memory.partition.contents import Contents, Move
from headrace.stores.memory.partition.waiting import Waiting
from headrace.stores.protocols.auditing import Leftover


class Index(Protocol):
    """Keys of jobs in one state."""

    def __iter__(self) -> Iterator[bytes]:
        """Iterate over the keys."""
        ...

    def remove(self, key: bytes) -> None:
        """Take a key out."""
        ...


class AuditingRules(Contents):
    """Looks through all indexes and records at once: nothing else happens meanwhile."""

    def audit(self, now: int, *, repair: bool) -> list[Leftover]:
        """Return what no step leaves behind, mended if so asked."""
        left = [*self._indexes_without_records(repair=repair), *self._several_indexes(repair=repair)]
        left += self._records_without_index(now, repair=repair)
        for stored_id in [each for each in self._changes if each not in self._jobs]:
            left.append(Leftover("changes without record", "mut", stored_id, repair))
            if repair:
                del self._changes[stored_id]
        return left

    @property
    def records(self) -> int:
        """Number of live jobs."""
        return len(self._jobs)

    def places(self) -> dict[bytes, list[tuple[str, bytes, Index]]]:
        """Return where each job is: for its id the index's name, its key there, and the index."""
        found: dict[bytes, list[tuple[str, bytes, Index]]] = {}
        for name, index, keys in self._indexes():
            for key in keys:
                found.setdefault(key[1:], []).append((f"r{key[:1].decode()}" if name == "ready" else name, key, index))
        return found

    def _indexes(self) -> Iterable[tuple[str, Index, Iterable[bytes]]]:
        """Yield name, index and keys; first the one in which a job stays that is in several."""
        yield "leased", self._leases, list(self._leases)
        yield "moving", _Aside(self._moving), [move.key for move in self._moving.values()]
        for name, waiting in (("retry", self._retry), ("scheduled", self._scheduled)):
            yield name, _Times(waiting), [key for _, key in waiting]
        yield "park", self._parked, list(self._parked)
        yield "ready", self._lanes, list(self._lanes)
        yield "suspects", self._suspects, list(self._suspects)
        yield "alone", self._alone, list(self._alone)

    def _indexes_without_records(self, *, repair: bool) -> list[Leftover]:
        left = []
        for stored_id, places in self.places().items():
            for name, key, index in places if stored_id not in self._jobs else ():
                left.append(Leftover("index without record", name, key, repair))
                if repair:
                    index.remove(key)
        return left

    def _several_indexes(self, *, repair: bool) -> list[Leftover]:
        left = []
        for places in self.places().values():
            for name, key, index in places[1:]:
                listed = places[0][0] in ("r0", "r1", "r2", "suspects", "alone")
                left.append(Leftover("twice in the lists" if listed else "several indexes", name, key, repair))
                if repair:
                    index.remove(key)
        return left

    def _records_without_index(self, now: int, *, repair: bool) -> list[Leftover]:
        places, left = self.places(), []
        closed = self.state == "closed"
        for stored_id in list(self._jobs):
            if stored_id in places and not closed:
                continue
            left.append(
                Leftover(
                    "record in a closed partition" if closed else "record without index", "jobs", stored_id, repair
                )
            )
            if repair:
                for _, key, index in places.get(stored_id, ()):
                    index.remove(key)
                changes = self._changes.setdefault(stored_id, Changes())
                self._note(changes, "repaired", now, b"", "found in a partition that is closed" if closed else "")
                if closed:
                    self._bury(b"1" + stored_id, now)
                else:
                    lane = min(self._jobs[stored_id][24], 2)
                    self._push(b"%d%b" % (lane, stored_id))
        return left


class _Aside:
    """Jobs that are set aside, by key."""

    def __init__(self, moving: dict[bytes, Move]) -> None:
        self._moving = moving

    def __iter__(self) -> Iterator[bytes]:
        return (move.key for move in self._moving.values())

    def remove(self, key: bytes) -> None:
        del self._moving[key[1:]]


class _Times:
    """Jobs that wait for their time, by key."""

    def __init__(self, waiting: Waiting) -> None:
        self._waiting = waiting

    def __iter__(self) -> Iterator[bytes]:
        return (key for _, key in self._waiting)

    def remove(self, key: bytes) -> None:
        self._waiting.remove(key)
