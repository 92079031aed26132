"""Rules of what is taken out by hand or by age, and of the schedules that put jobs in."""

from __future__ import annotations

from functools import partial
from typing import get_args

from headrace.envelope import encode_body
from headrace.ids import encode_id
from headrace.schedules.mark import ScheduleMark
from headrace.stores.base import Fence, Index, NewJob, Once, ParkedLimits, Sought, Store, TrimmedParked
from headrace.topology import PartitionRef
from tests.conformance.steps import QUEUE, key
from tests.conformance.twins.commands import command, integers, one_of, several
from tests.conformance.twins.machine import IDS, TYPES, Twins, ids, numbers, types

INDEXES: tuple[Index, ...] = get_args(Index)
indexes = one_of(*INDEXES)
series = one_of("nightly", "hourly", "sch\u00e9dule")
DAY_MS = 86_400_000


class RemovalRules(Twins):
    """Withdraw, purge, trim what is parked, look through indexes; schedules and what is enqueued once."""

    def holding(self, number: int) -> PartitionRef:
        """Return a partition with live jobs, mostly."""
        found = sorted(ref for ref, each in self.memory._data.partitions.items() if each._jobs)
        return found[number % len(found)] if found and number % 6 else self.place(number)

    def live_in(self, ref: PartitionRef) -> list[bytes]:
        partition = self.memory._data.partitions.get(ref)
        return sorted(partition._jobs) if partition else []

    @command(4, place=numbers, chosen=several(numbers, 5), job_id=ids, running=one_of(True, False))
    def withdraw(self, place: int, chosen: list[int], job_id: str, running: bool) -> None:
        """Some that live there, mostly; one that may live elsewhere or nowhere; now and then one twice."""
        ref = self.holding(place)
        live = self.live_in(ref)
        asked = [live[number % len(live)] for number in chosen if live] + [encode_id(job_id)]
        self.both(lambda store: store.withdraw(ref, asked, running=running))

    @command(
        4, place=numbers, index=indexes, kind=types, age=one_of(None, 0, 1, 1000, DAY_MS), passed=one_of(0, 0, 0, 1, 9)
    )
    def purge(self, place: int, index: Index, kind: str, age: int | None, passed: int) -> None:
        """Of a type, of an age, or all; or only counted. Jobs that run are refused."""
        ref = self.holding(place)
        before = 1 << 50 if age is None else self.clock() - age
        sought = Sought(before, kind if place % 2 else None)
        self.both(lambda store: store.purge(ref, index, sought, passed, remove=place % 5 > 0))

    @command(2, place=numbers, index=indexes, number=numbers, passed=one_of(0, 0, 1))
    def purge_one(self, place: int, index: Index, number: int, passed: int) -> None:
        ref = self.holding(place)
        live = self.live_in(ref) or [encode_id(IDS[0])]
        sought = Sought(stored_id=live[number % len(live)])
        self.both(lambda store: store.purge(ref, index, sought, passed))

    @command(
        3,
        place=numbers,
        kind=types,
        jobs=one_of(None, 0, 1, 3),
        age_ms=one_of(None, 0, 1000, 60_000),
        limit=one_of(1, 2, 250),
        leads=one_of(0, 0, 1, 2),
    )
    def trim_parked(self, place: int, kind: str, jobs: int | None, age_ms: int | None, limit: int, leads: int) -> None:
        """Page by page, to the end."""
        holding = sorted(self.memory._data.queue(QUEUE).parked)
        ref = holding[place % len(holding)] if holding and place % 6 else self.place(place)
        topology = self.topology
        fence = Fence(leads, f"term {leads}", topology.incarnation if topology else 1) if leads else None
        after = b""
        for _ in range(4):
            trimmed = self.both(partial(self.trim_page, ref, kind, ParkedLimits(jobs, age_ms), after, limit, fence))
            after = trimmed.after if trimmed else b""
            if not after:
                return

    @staticmethod
    async def trim_page(
        ref: PartitionRef, kind: str, limits: ParkedLimits, after: bytes, limit: int, fence: Fence | None, store: Store
    ) -> TrimmedParked:
        return await store.trim_parked(ref, kind, limits, after, limit, fence=fence)

    @command(2, place=numbers, skip=one_of(0, 0, 0, 1, 5))
    def browse(self, place: int, skip: int) -> None:
        """Every index, in its order."""
        ref = self.holding(place)
        for index in INDEXES:
            self.both(partial(self.page, ref, index, skip))

    @staticmethod
    async def page(ref: PartitionRef, index: Index, skip: int, store: Store) -> object:
        return [(each.stored_id, each.at, each.record, each.worker) for each in await store.browse(ref, index, skip)]

    @command(
        3,
        name=series,
        epoch=integers(1, 3),
        nonce=one_of(0, 0, 0, 1),
        at=numbers,
        known=one_of(True, True, False),
        before=one_of(0, 0, 0, 1),
    )
    def note_schedule(self, name: str, epoch: int, nonce: int, at: int, known: bool, before: int) -> None:
        """By a leader, one that was replaced, another one of its epoch, or one of an earlier queue of the name."""
        topology = self.topology
        fence = Fence(epoch, f"term {epoch}.{nonce}", max(1, (topology.incarnation if topology else 1) - before))
        marks = self.run(self.memory.read_schedules(QUEUE)).marks
        expected = marks.get(name) if known else ScheduleMark(at + 1, "0 3 * * *")
        mark = ScheduleMark(at, f"*/{1 + at % 7} * * * * Europe/Berlin")
        self.both(lambda store: store.note_schedule(QUEUE, fence, name, expected, mark))
        self.both(lambda store: store.read_schedules(QUEUE))
        if at % 5 == 0:
            self.both(lambda store: store.forget_schedule(QUEUE, name, expected or mark))

    @command(3, place=numbers, name=series, number=integers(1, 6), job_id=ids, empty=one_of(0, 0, 0, 0, 1))
    def enqueue_once(self, place: int, name: str, number: int, job_id: str, empty: int) -> None:
        """A leader's job for a time, which a later one may have put in before."""
        ref, topology, once = self.place(place), self.topology, Once(name, number)
        version = topology.versions.get(ref.version) if topology else None
        body = encode_body(TYPES[IDS.index(job_id) % len(TYPES)], {"n": self.commands})
        jobs = [] if empty else [NewJob(key(job_id), 0, body)]
        nonce, incarnation = b"once-%d" % self.commands, topology.incarnation if topology else 1
        count = version.partitions if version else 1
        self.both(lambda store: store.enqueue(ref, count, nonce, jobs, incarnation, once=once))
