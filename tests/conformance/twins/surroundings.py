"""Rules of what lies around the jobs: hints and the timer, workers, statistics, sleep, audits."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from headrace.ids import encode_id
from headrace.statistics import summarise
from headrace.stores.base import Beat, DeadLetter, FinishedBatch, PartitionAudit, Store
from headrace.stores.redis import RedisStore
from headrace.topology import PartitionRef
from tests.conformance.steps import QUEUE, no_pause
from tests.conformance.twins.commands import command, integers, one_of
from tests.conformance.twins.machine import IDS, WORKERS, Twins, ids, numbers, workers


class SurroundingRules(Twins):
    """Wait, tick, leave, stop, measure, count, sleep, look, audit."""

    @command(4, place=numbers, give=one_of(0, 0, 1))
    def take_or_give_hint(self, place: int, give: int) -> None:
        """Taken only if there is one: else a server would be waited for."""
        ref, hints = self.place(place), self.memory._data.queue(QUEUE)
        if give:
            self.both(lambda store: store.hint(ref))
        elif hints.hot or hints.rearm:
            self.both(lambda store: store.wait_hint([QUEUE], 5.0))

    @command(3, worker=workers, slots=integers(0, 2))
    def tick(self, worker: str, slots: int) -> None:
        beat = Beat("host", 1, "pod", "node", slots, 1, candidate=True) if slots else None
        self.both(lambda store: store.tick(QUEUE, worker, beat))

    @command(2, worker=workers, ttl_ms=one_of(None, None, 0, 1000, 30_000))
    def leave_or_stop(self, worker: str, ttl_ms: int | None) -> None:
        if ttl_ms is None:
            self.both(lambda store: store.leave(QUEUE, worker))
        else:
            self.both(lambda store: store.stop_claiming(QUEUE, [worker], ttl_ms))

    @command(2, number=integers(0, 5))
    def measure(self, number: int) -> None:
        self.both(lambda store: store.count_work(QUEUE, {"claimed": number, "succeeded": 1}))
        if number % 2:
            self.both(lambda store: summarise(store, QUEUE))
        else:
            self.both(lambda store: store.write_scaling(QUEUE, b"%d" % number))

    @command(2, place=numbers, horizon_ms=one_of(0, 1000, 3_600_000))
    def sleep(self, place: int, horizon_ms: int) -> None:
        ref = self.place(place)
        self.both(lambda store: store.sleep(ref, horizon_ms))

    @command(2)
    def listen(self) -> None:
        """For queues that were woken since the last time; each store has cursors of its own."""
        self.both(self.heard)

    async def heard(self, store: Store) -> object:
        whose = isinstance(store, RedisStore)
        if whose not in self.cursors:
            self.cursors[whose] = await store.last_wake()
            return ()
        wakes = await store.wait_wakes(self.cursors[whose], 0.001)
        self.cursors[whose] = wakes.cursor
        return wakes.queues

    @command(2, place=numbers, at=numbers, later=one_of(0, 0, 1))
    def hint_parked_or_forget_hints(self, place: int, at: int, later: int) -> None:
        """What an audit does that mends hints; ``later``: it has read another topology than the one that counts."""
        ref, topology = self.place(place), self.topology
        if at % 3:
            self.both(lambda store: store.hint_parked(ref, self.clock() - at))
        elif topology is not None:
            read = replace(topology, epoch=topology.epoch + later) if later else topology
            self.both(lambda store: store.forget_hints(read, ref.label.encode()))
        self.both(lambda store: store.hinted_labels(QUEUE))

    @command(1, marker=one_of("data", "other data"))
    def mark_the_data(self, marker: str) -> None:
        self.both(lambda store: store.read_marker())
        self.both(lambda store: store.write_marker(marker))

    @command(2, place=numbers, job_id=ids, limit=one_of(1, 2, 1000), newest_first=one_of(False, True))
    def look(self, place: int, job_id: str, limit: int, newest_first: bool) -> None:
        """Every step that changes nothing. The audit finds nothing, since only steps were taken."""
        ref, stored = self.place(place), [encode_id(each) for each in IDS]
        self.both(lambda store: store.counts([ref]))
        self.both(lambda store: store.survey([ref]))
        self.both(lambda store: store.statuses(ref, stored), lambda found: found.live)
        self.both(lambda store: store.describe(ref, encode_id(job_id)), lambda found: found and found[:2])
        self.both(lambda store: store.find_finished(ref, stored), lambda found: found.jobs)
        self.both(lambda store: store.finished(ref, limit=limit, newest_first=newest_first), _jobs)
        self.both(lambda store: store.find_dead(ref, stored), lambda found: _letters(sorted(found.letters.values())))
        self.both(lambda store: _exported(store, ref, limit), _letters)
        self.both(lambda store: store.parked(ref))
        self.both(lambda store: store.parked_partitions(QUEUE))
        self.both(lambda store: store.arrivals(ref), sorted)
        self.both(lambda store: store.glance(QUEUE))
        self.both(lambda store: store.read_stats(QUEUE))
        self.both(lambda store: store.workers(QUEUE))
        self.both(lambda store: store.about_workers(QUEUE, WORKERS))
        self.both(lambda store: store.successor(ref))
        self.both(lambda store: store.read_grave(QUEUE))
        self.both(lambda store: store.queues())
        self.both(lambda store: store.stored_partitions(QUEUE, no_pause))
        self.both(lambda store: store.stored_queues(no_pause))
        self.both(lambda store: store.audit_keys(QUEUE, repair=False, pause=no_pause))
        self.both(lambda store: store.audit_partition(ref, repair=False, pause=no_pause), _proven)


async def _exported(store: Store, ref: PartitionRef, limit: int) -> list[DeadLetter]:
    """All dead letters, page by page."""
    found: list[DeadLetter] = []
    while page := await store.dead_letters(ref, found[-1] if found else None, limit):
        found += page
    return found


def _letters(letters: Iterable[DeadLetter]) -> object:
    return [(each.letter, each.died_at, each.record) for each in letters]


def _jobs(batches: list[FinishedBatch]) -> object:
    return [batch.jobs for batch in batches]


def _proven(found: PartitionAudit) -> object:
    return found.state, found.incarnation, found.records, list(found.leftovers), found.proven
