"""Rules of jobs: producers, workers, and what is left of jobs that have ended."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from headrace.envelope import body_priority, encode_result, record_body
from headrace.ids import decode_id, partition_of
from headrace.stores.base import (
    Accepted,
    Claim,
    Failure,
    Fence,
    Moved,
    NewJob,
    Release,
    Report,
    Settled,
    Store,
    Success,
    Unknown,
)
from headrace.topology import PartitionRef, Topology
from tests.conformance.steps import QUEUE, key, opened
from tests.conformance.twins.commands import command, integers, one_of, several, tuples
from tests.conformance.twins.machine import IDS, TYPES, Twins, ids, numbers, picks, spans, type_of, types, workers

lanes = one_of(b"0", b"1", b"1", b"2")
whens = one_of(0, 0, 0, -1, -1000, -30_000, -3_600_000, 1_700_000_002_000)
delays = one_of(0, 1, 1000, 30_000)
Settle = Callable[[Store, PartitionRef, list[Settled]], Awaitable[list[int]]]


class JobRules(Twins):
    """Enqueue, claim, settle, recover, park, bury, keep."""

    # ---- producers ---------------------------------------------------------------------------------------------------

    @command(8, place=numbers, jobs=several(tuples(ids, whens, lanes), 6), wrong_count=one_of(*[0] * 9, 1))
    def enqueue(self, place: int, jobs: list[tuple[str, int, bytes]], wrong_count: int) -> None:
        """One or many, now or at a time, in every lane, by a producer that may believe in another partition count."""
        ref = self.place(place)
        self.insert(ref, [self.job(*each) for each in jobs], self.partitions_of(ref) + wrong_count)

    @command(6, job_id=ids, when=whens, lane=lanes)
    def enqueue_over_all_versions(self, job_id: str, when: int, lane: bytes) -> None:
        """A caller's own id: it is looked for in every draining version first, which is marked by that."""
        topology = self.topology
        if topology is None:
            return
        for version in topology.older:
            at = PartitionRef(QUEUE, version, partition_of(job_id, topology.versions[version].partitions))
            found = self.probe(at, topology, [(key(job_id, lane), b"")])
            if found is None or any(found):
                return
        home = PartitionRef(QUEUE, topology.active, partition_of(job_id, topology.partitions))
        self.insert(home, [self.job(job_id, when, lane)], topology.partitions, topology.incarnation)

    @command(2, place=numbers, number=one_of(14, 40), size=one_of(0, 300_000), lane=lanes)
    def enqueue_many(self, place: int, number: int, size: int, lane: bytes) -> None:
        """So many, or such large ones, that a claim does not take all of them."""
        ref = self.place(place)
        jobs = [
            NewJob(key(f"many-{self.commands}-{n}", lane), 0, self.job("a", 0, lane, size if n < 10 else 0).body)
            for n in range(number)
        ]
        self.insert(ref, jobs, self.partitions_of(ref))

    def insert(self, ref: PartitionRef, jobs: list[NewJob], partitions: int, incarnation: int | None = None) -> None:
        nonce = b"n%d" % len(self.nonces)
        self.nonces.append((ref, nonce, jobs))
        known = incarnation or self.incarnation
        self.both(lambda store: store.enqueue(ref, partitions, nonce, jobs, known), _placed)

    @command(2, number=numbers, chosen=picks)
    def after_a_lost_reply(self, number: int, chosen: list[int]) -> None:
        """The call is sent again; an older version is asked for its nonce."""
        if not self.nonces:
            return
        again, nonce, jobs = self.nonces[-1 - number % len(self.nonces)]
        partitions, incarnation = self.partitions_of(again), self.incarnation
        self.both(lambda store: store.enqueue(again, partitions, nonce, jobs, incarnation), _placed)
        ref, topology = self.draining(number), self.topology
        if ref is not None and topology is not None:
            asked = [(key(IDS[each % len(IDS)]), b"n%d" % each) for each in (number, *chosen)]
            self.probe(ref, topology, asked)

    def probe(self, ref: PartitionRef, topology: Topology, asked: list[tuple[bytes, bytes]]) -> list[bool] | None:
        return self.both(lambda store: store.probe(ref, topology, asked))

    def partitions_of(self, ref: PartitionRef) -> int:
        topology = self.topology
        known = topology.versions.get(ref.version) if topology else None
        return known.partitions if known else 1

    @property
    def incarnation(self) -> int:
        topology = self.topology
        return topology.incarnation if topology else 1

    # ---- workers -----------------------------------------------------------------------------------------------------

    @command(
        14,
        place=numbers,
        worker=workers,
        limit=one_of(0, 1, 1, 2, 4, 12, 40),
        lease_ms=spans,
        acks=picks,
        suspects=one_of(0, 1, 1, 3),
        alone=one_of(False, True),
        told=one_of(0, 0, 1, 300),
        leads=one_of(0, 0, 0, 1, 2),
    )
    def claim(
        self,
        place: int,
        worker: str,
        limit: int,
        lease_ms: int,
        acks: list[int],
        suspects: int,
        alone: bool,
        told: int,
        leads: int,
    ) -> None:
        self.seq += 1
        ref = self.busy(place)
        settled = [each for each in self.held(acks).get(ref, []) if _holder(each) == worker]
        fence = self.leader(leads)
        claim = self.both(
            lambda store: store.claim(
                ref,
                worker,
                self.seq,
                limit,
                lease_ms,
                settled,
                suspects=suspects,
                alone=alone,
                successes=_successes(settled, told),
                fence=fence,
            ),
            _claim,
        )
        self.leases += [(ref, Settled(job.key, claim.token)) for job in claim.jobs] if claim else []

    @command(5, place=numbers, worker=workers, lease_ms=spans, suspects=integers(1, 40), alone=one_of(False, True))
    def claim_much(self, place: int, worker: str, lease_ms: int, suspects: int, alone: bool) -> None:
        self.claim(place, worker, 40, lease_ms, [], suspects, alone, 0, 3)

    @command(2, place=numbers, worker=workers, ahead=integers(-3, 1), lease_ms=spans)
    def resume(self, place: int, worker: str, ahead: int, lease_ms: int) -> None:
        ref, seq = self.place(place), max(1, self.seq + ahead)
        self.both(lambda store: store.resume(ref, worker, seq, lease_ms), lambda claim: _claim(claim, ordered=False))

    def settle(self, chosen: list[int], command: Settle) -> None:
        for ref, leases in self.held(chosen).items():
            self.settle_at(ref, leases, command)

    def settle_at(self, ref: PartitionRef, leases: list[Settled], command: Settle) -> None:
        self.both(lambda store: command(store, ref, leases))

    @command(5, chosen=picks, told=one_of(0, 1, 300))
    def ack(self, chosen: list[int], told: int) -> None:
        """Each worker acknowledges what is its own."""
        for ref, leases in self.held(chosen).items():
            for worker in sorted({_holder(each) for each in leases}):
                own = [each for each in leases if _holder(each) == worker]
                self.settle_at(ref, own, lambda store, at, own: store.ack(at, own, _successes(own, told)))

    @command(6, chosen=picks, delay=one_of(None, None, 0, 1, 1000, 30_000), error=one_of("", "boom", "☃"))
    def fail(self, chosen: list[int], delay: int | None, error: str) -> None:
        self.settle(chosen, lambda store, at, leases: store.fail(at, [Failure(*each, delay, error) for each in leases]))

    @command(3, chosen=picks, delay=delays, note=one_of("", "stopped"))
    def release(self, chosen: list[int], delay: int, note: str) -> None:
        """Handed back, or put off by a snooze."""
        self.settle(
            chosen, lambda store, at, leases: store.release(at, [Release(*each, delay, note) for each in leases])
        )

    @command(2, chosen=picks, delays=several(delays, 4, 4))
    def release_some_now_and_some_later(self, chosen: list[int], delays: list[int]) -> None:
        self.settle(
            chosen,
            lambda store, at, leases: store.release(
                at, [Release(*each, delay) for each, delay in zip(leases, delays, strict=False)]
            ),
        )

    @command(3, chosen=picks, lease_ms=spans, reported=one_of([], [0], [0, 1], [5]))
    def renew(self, chosen: list[int], lease_ms: int, reported: list[int]) -> None:
        self.settle(
            chosen,
            lambda store, at, leases: store.renew(
                at, leases, lease_ms, [Report(n, 0.25 * n, f"part {n}") for n in reported if n < len(leases)]
            ),
        )

    @command(4, chosen=picks)
    def park(self, chosen: list[int]) -> None:
        self.settle(chosen, lambda store, at, leases: store.park(at, [Unknown(*each, _kind(each)) for each in leases]))

    @command(4, place=numbers, kinds=several(types, 3), give_up=one_of(0, 0, 1, 1000))
    def unpark_or_give_up(self, place: int, kinds: list[str], give_up: int) -> None:
        """Of types that a worker knows, or that none ever will."""
        holding = sorted(self.memory._data.queue(QUEUE).parked)
        ref = holding[place % len(holding)] if holding and place % 6 else self.place(place)
        if not give_up:
            self.both(lambda store: store.unpark(ref, kinds))
        elif kinds:
            self.both(lambda store: store.bury_parked(ref, kinds[0], give_up))

    # ---- housekeeping ------------------------------------------------------------------------------------------------

    @command(4, ms=one_of(1, 1, 2, 40, 1000, 1000, 5000, 10_000, 30_000, 60_000, 3_600_000))
    def pass_time(self, ms: int) -> None:
        self.clock.advance(ms)

    @command(8, number=numbers, late_ms=integers(-1, 1))
    def until_something_is_due(self, number: int, late_ms: int) -> None:
        """To the end of a lease or a delay, or a millisecond before or after it."""
        times = sorted({each.next_due() or 0 for each in self.memory._data.partitions.values()})
        due = times[number % len(times)] + late_ms if times else 0
        self.clock.advance(max(0, due - self.clock()))

    @command(3, place=numbers, leads=one_of(0, 0, 1, 2))
    def keep_house(self, place: int, leads: int) -> None:
        """As a worker does, or a leader."""
        ref, fence = self.busy(place), self.leader(leads)
        self.both(lambda store: store.recover(ref))
        self.both(lambda store: store.promote_due(ref))
        self.both(lambda store: store.trim(ref, fence=fence))

    def leader(self, epoch: int) -> Fence | None:
        """Return the fence of the leader of that epoch; 0 is nobody."""
        return Fence(epoch, f"term {epoch}", self.incarnation) if epoch else None

    # ---- dead letters and finished jobs ------------------------------------------------------------------------------

    def with_letters(self, number: int) -> PartitionRef:
        """Return a partition that holds dead letters, mostly."""
        found = sorted(ref for ref, each in self.memory._data.partitions.items() if each.dead)
        return found[number % len(found)] if found and number % 6 else self.place(number)

    @command(3, place=numbers, number=numbers)
    def requeue_dead(self, place: int, number: int) -> None:
        """Put a letter back: enqueue its record into the active version, then remove it."""
        ref, topology = self.with_letters(place), self.topology
        letters = self.run(self.memory.dead_letters(ref))
        if not letters or topology is None:
            return
        letter = letters[number % len(letters)]
        home = PartitionRef(QUEUE, topology.active, partition_of(decode_id(letter.stored_id), topology.partitions))
        body = record_body(letter.record)
        job = NewJob(b"%d" % body_priority(body) + letter.stored_id, 0, body)
        self.insert(home, [job], topology.partitions)
        self.both(lambda store: store.remove_dead(ref, [letter.letter]))

    @command(2, place=numbers, most=one_of(0, 1, 100), to=numbers, other=one_of(0, 0, 0, 1))
    def copy_or_purge_dead(self, place: int, most: int, to: int, other: int) -> None:
        """Copy them as completing a version does (``other``: of another queue of the name), and delete some."""
        ref, home, incarnation = self.with_letters(place), self.place(to), other + self.incarnation
        letters = self.run(self.memory.dead_letters(ref))
        self.both(lambda store: store.adopt_dead(home, letters, incarnation))
        gone = [each.letter for each in letters[:most]]
        self.both(lambda store: store.remove_dead(ref, [*gone, b"nobody@1"]))

    @command(2, place=numbers, to=numbers)
    def carry_finished_over(self, place: int, to: int) -> None:
        """What completing a version does with a page of finished jobs."""
        found = sorted(ref for ref, each in self.memory._data.partitions.items() if each.finished.newest)
        ref = found[place % len(found)] if found else self.place(place)
        home, incarnation = self.place(to), self.incarnation

        async def carry(store: Store) -> object:
            page = await store.finished(ref)
            taken = await store.adopt_finished(home, page, incarnation)
            return taken, await store.forget_finished(ref, [batch.entry for batch in page])

        if ref != home:
            self.both(carry)


def _kind(lease: Settled) -> str:
    job_id = decode_id(lease.key[1:])
    return type_of(job_id) if job_id in IDS else TYPES[0]


def _holder(lease: Settled) -> str:
    return lease.token.rpartition(b":")[0].decode()


def _successes(leases: list[Settled], told: int) -> list[Success]:
    """What a worker tells of them; ``told``: length of the results, 0: nothing is told."""
    return [Success(_kind(each), 1, encode_result("r" * told)) for each in leases] if told else []


def _placed(answer: Accepted | Moved) -> object:
    return (answer.existing, answer.replicas) if isinstance(answer, Accepted) else answer


def _claim(claim: Claim, *, ordered: bool = True) -> object:
    """A claim with its jobs opened: packed facts may be written in several ways."""
    jobs = [(claimed.key, claimed.record, opened(claimed).history) for claimed in claim.jobs]
    if not ordered:
        jobs.sort()
    lost, now = list(claim.lost), claim.now
    rest = (claim.refused, claim.gone, claim.next_hint, claim.alarm_ms, claim.make_room, claim.fenced)
    return claim.token, jobs, lost, now, rest, claim.fencing_token
