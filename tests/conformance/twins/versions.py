"""Rules of versions: whole sequences of `headrace.lifecycle`, `headrace.migration` and `headrace.deletion`, and single
steps of them, as somebody makes them who stopped in between, or comes late."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from headrace import lifecycle, migration
from headrace.deletion import delete_queue
from headrace.ids import partition_of
from headrace.settings import QueueSettings
from headrace.stores.base import Accepted, Aside, Fence, NewJob, Store
from headrace.topology import PartitionRef, Topology
from tests.conformance.steps import QUEUE
from tests.conformance.twins.commands import command, integers, one_of, several
from tests.conformance.twins.machine import PARTITIONS, VERSIONS, Twins, ids, numbers, picks

versions, partition_counts = integers(1, VERSIONS), integers(1, PARTITIONS)
epochs = integers(1, 3)
MOST_VERSIONS = 9

SETTINGS = [
    QueueSettings.model_validate(each)
    for each in (
        {},
        {"stop": "hold"},
        {"stop": "hold_and_drain"},
        {"rate_per_second": 3},
        {"max_in_flight": 3, "crash_limit": 1},
        {"max_length": 6},
        {"retention": {"done_count": 3, "dead_count": 2, "history_entries": 2}},
        {"retention": {"done_count": 100, "done_bytes": 1024, "done_seconds": 40, "dead_count": 1}, "crash_limit": 1},
        {"retention": {"done_count": 0}},
        {"mode": "leader_only", "retention": {}},
        {"drain": {"policy": "migrate", "order": "strict"}},
    )
]


class VersionRules(Twins):
    """Promote, configure, close, complete, move, bury, delete."""

    @command(0, settings=one_of(*SETTINGS), partitions=partition_counts)
    def create(self, settings: QueueSettings, partitions: int) -> None:
        self.both(lambda store: lifecycle.promote(store, QUEUE, 1, partitions, settings=settings))

    @command(2, version=versions, partitions=partition_counts)
    def promote(self, version: int, partitions: int) -> None:
        self.both(lambda store: lifecycle.promote(store, QUEUE, version, partitions))

    @command(2, settings=one_of(*SETTINGS))
    def configure(self, settings: QueueSettings) -> None:
        """Pause, resume, limits, retention, mode, drain order."""
        self.both(lambda store: lifecycle.configure(store, QUEUE, settings))

    @command(3, number=numbers, retry_ms=one_of(0, 0, 5000))
    def complete(self, number: int, retry_ms: int) -> None:
        ref = self.draining(number)
        if ref is not None:
            self.both(lambda store: lifecycle.complete(store, QUEUE, ref.version, client_retry_ms=retry_ms))

    @command(2, chance=integers(0, 3), only_if_empty=one_of(False, True), place=numbers, before=integers(0, 1))
    def delete(self, chance: int, only_if_empty: bool, place: int, before: int) -> None:
        """The queue, or one partition, by somebody who stopped then, or who knows an earlier queue of the name."""
        topology = self.topology
        if chance == 0:
            self.both(lambda store: delete_queue(store, QUEUE, only_if_empty=only_if_empty))
        elif chance == 1 and topology is not None:
            ref, incarnation = self.place(place), max(1, topology.incarnation - before)
            self.both(lambda store: store.delete_partition(ref, incarnation))
        elif chance == 2:
            self.both(lambda store: store.unlist_queue(QUEUE))

    # ---- moving ------------------------------------------------------------------------------------------------------

    def fence(self, epoch: int) -> Fence:
        topology = self.topology
        return Fence(epoch, f"term {epoch}", topology.incarnation if topology else 1)

    @command(3, number=numbers, epoch=epochs, limit=one_of(1, 2, 100))
    def move(self, number: int, epoch: int, limit: int) -> None:
        ref, fence = self.draining(number), self.fence(epoch)
        if ref is not None:
            self.both(lambda store: migration.move_jobs(store, ref, fence, limit=limit))

    @command(3, job_ids=several(ids, 4, 1), partitions=partition_counts, epoch=epochs)
    def promote_over_waiting_jobs(self, job_ids: list[str], partitions: int, epoch: int) -> None:
        """And move them; a leader that was replaced is refused."""
        topology = self.topology
        if topology is None or topology.deleting or topology.highest >= MOST_VERSIONS:
            return
        for number, job_id in enumerate(job_ids):
            at = PartitionRef(QUEUE, topology.active, partition_of(job_id, topology.partitions))
            nonce, job = b"over-%d.%d" % (self.commands, number), self.job(job_id, 0, b"1")
            self.both(partial(self.enqueued, at, topology, nonce, job))
        self.both(lambda store: lifecycle.promote(store, QUEUE, topology.highest + 1, partitions))
        fence = self.fence(epoch)
        for ref in topology.refs(topology.active):
            self.both(partial(migration.move_jobs, source=ref, fence=fence))

    @staticmethod
    async def enqueued(ref: PartitionRef, topology: Topology, nonce: bytes, job: NewJob, store: Store) -> object:
        answer = await store.enqueue(ref, topology.partitions, nonce, [job], topology.incarnation)
        return answer.existing if isinstance(answer, Accepted) else answer

    @command(1, place=numbers, epoch=epochs)
    def lead(self, place: int, epoch: int) -> None:
        """Be obeyed, and forget marks of arrival that another leader left."""
        ref, fence = self.place(place), self.fence(epoch)
        self.both(lambda store: store.fence(ref, fence))
        self.both(lambda store: migration.tidy_arrivals(store, ref, fence))

    @command(2, number=numbers, epoch=epochs, limit=one_of(0, 1, 2, 100), to=versions)
    def set_aside(self, number: int, epoch: int, limit: int, to: int) -> None:
        ref, fence = self.draining(number) or self.place(number), self.fence(epoch)
        self.both(lambda store: store.set_aside(ref, fence, to, limit), _aside)

    @command(3, source=numbers, where=numbers, epoch=epochs)
    def adopt(self, source: int, where: int, epoch: int) -> None:
        """Insert what is aside somewhere: mostly in the active version, sometimes where it does not belong."""
        topology, fence = self.topology, self.fence(epoch)
        ref = self.draining(source)
        if topology is None or ref is None:
            return
        jobs = sorted(self.run(self.memory.set_aside(ref, fence, 1, 0)) if self.obeys(ref, fence) else [])
        home = PartitionRef(QUEUE, topology.active, where % topology.partitions)
        if where % 8 == 7:
            home = self.place(where)
        self.both(lambda store: store.set_aside(ref, fence, 1, 0), _aside)
        if home != ref:
            self.both(lambda store: store.adopt(home, topology.partitions, fence, ref, jobs))

    def obeys(self, ref: PartitionRef, fence: Fence) -> bool:
        """Whether the partition obeys this leader, and there is one."""
        partition = self.memory._data.partitions.get(ref)
        known = partition and partition._fence
        return (
            partition is not None
            and fence.incarnation == partition.incarnation
            and (known is None or fence.epoch >= known.epoch)
        )

    @command(2, number=numbers, epoch=epochs, to=versions, chosen=picks)
    def retarget_or_let_go(self, number: int, epoch: int, to: int, chosen: list[int]) -> None:
        ref, fence = self.draining(number) or self.place(number), self.fence(epoch)
        partition = self.memory._data.partitions.get(ref)
        aside = sorted(partition._moving) if partition else []
        some = sorted({aside[n % len(aside)] for n in chosen} if aside else set()) or [b"nobody"]
        self.both(lambda store: store.still_aside(ref, some))
        self.both(lambda store: store.retarget(ref, fence, some, to))
        gone = [each for each in some if self.has_arrived(each)]
        self.both(lambda store: store.let_go(ref, fence, gone))

    def has_arrived(self, stored_id: bytes) -> bool:
        return any(stored_id in partition._adopted for partition in self.memory._data.partitions.values())

    @command(1, number=numbers, limit=one_of(1, 100), epoch=one_of(None, 1, 2))
    def bury_waiting(self, number: int, limit: int, epoch: int | None) -> None:
        """By a leader, or by somebody who is none."""
        ref, fence = self.draining(number) or self.place(number), self.fence(epoch) if epoch else None
        self.both(lambda store: store.bury_waiting(ref, "drained too long", limit, fence=fence))

    # ---- single steps ------------------------------------------------------------------------------------------------

    def some_topology(self, later: int) -> Topology:
        """Return the topology that counts, one that somebody is about to write, or one from before."""
        topology = self.topology or Topology.created(QUEUE, 1, PARTITIONS)
        if later and topology.highest < MOST_VERSIONS and not topology.deleting:
            return topology.promoted(topology.highest + 1, later)
        return topology

    @command(
        3, place=numbers, later=integers(0, PARTITIONS), settings=one_of(None, *SETTINGS), create=one_of(True, False)
    )
    def settle_or_mark(self, place: int, later: int, settings: QueueSettings | None, create: bool) -> None:
        """By a topology that counts, or will, or one of its epoch with other ``settings``, which was forgotten."""
        ref, topology = self.place(place), self.some_topology(later)
        topology = topology if settings is None else replace(topology, settings=settings)
        if ref.version == topology.active:
            self.both(lambda store: store.install(ref, topology, topology.partitions, create=create))
        elif ref.version in topology.versions:
            self.both(lambda store: store.mark(ref, topology))
        if ref.version in topology.versions:
            self.both(lambda store: store.settle(ref, topology))

    @command(1, settings=one_of(*SETTINGS), known=one_of(True, False))
    def replace_the_topology(self, settings: QueueSettings, known: bool) -> None:
        """What a failover does that forgets it; whoever has not read it replaces nothing."""
        topology = self.topology
        if topology is not None and not topology.deleting:
            other = replace(topology, settings=settings)
            read = topology if known else replace(topology, owner={"name": "nobody"})
            self.both(lambda store: store.write_topology(read, other))

    @command(1, place=numbers, discard=one_of(False, True))
    def close_remove_discard(self, place: int, discard: bool) -> None:
        ref, topology = self.place(place), self.topology
        incarnation = topology.incarnation if topology else 1
        self.both(lambda store: store.close_partition(ref))
        self.both(lambda store: store.remove(ref, incarnation))
        self.both(lambda store: store.successor(ref))
        if discard:
            self.both(lambda store: store.discard(ref))


def _aside(jobs: list[Aside]) -> object:
    return sorted(job[:6] for job in jobs)
