"""The model of moves: jobs and dead letters that leave a partition for one of another version."""

from __future__ import annotations

from collections.abc import Sequence

from tests.simulation.rules import Rules
from tests.simulation.values import Arrivals, Aside, Call, Job, Partition, Ref, Reply, Store

Outcome = tuple[Store, Reply]


def job_order(job: Job) -> int:
    return job.uid


class MovingSteps:
    """The part of a `tests.simulation.store.Machine` that moves what it holds, and how it finds a partition."""

    def __init__(self, refs: Sequence[Ref], ids: tuple[str, ...], rules: Rules) -> None:
        self.refs = tuple(refs)
        self.ids = ids
        self.rules = rules
        self._index = {ref: number for number, ref in enumerate(self.refs)}

    def at(self, store: Store, ref: Ref | None) -> Partition | None:
        assert ref is not None
        return store.partitions[self._index[ref]]

    def put(self, store: Store, ref: Ref | None, partition: Partition | None) -> Store:
        assert ref is not None
        number = self._index[ref]
        partitions = store.partitions
        return store._replace(partitions=(*partitions[:number], partition, *partitions[number + 1 :]))

    def _lives(self, partition: Partition, job_id: str) -> bool:
        return job_id in {self.ids[uid] for uid in (*(job.uid for job in partition.jobs), *dict(partition.moving))}

    # ---- moving jobs, by a leader ---------------------------------------------------------------------------------

    def set_aside(self, store: Store, call: Call) -> Outcome:
        """Every ready job moves to the version ``number``; those set aside before keep theirs."""
        partition = self._fenced(store, call)
        if partition is None:
            return store, "fenced"
        if partition.state == "draining" or not self.rules.set_aside_needs_draining:
            fresh = tuple((job.uid, call.number) for job in partition.jobs if job.token is None)
            partition = partition._replace(
                jobs=tuple(job for job in partition.jobs if job.token),
                moving=tuple(sorted((*partition.moving, *fresh))),
            )
        return self._put_back(store, call, partition), Aside(partition.moving)

    def adopt(self, store: Store, call: Call) -> Outcome:
        """Insert jobs that are set aside in ``source``; the uids that are here now, or were."""
        partition = self._fenced(store, call)
        if partition is None:
            return store, "fenced"
        adopted = []
        for uid in call.uids:
            known = uid in dict(partition.arrived)
            if not known and (partition.state != "active" or partition.partitions != call.number):
                continue
            adopted.append(uid)
            if known or self._lives(partition, self.ids[uid]):
                continue
            if partition.asleep:
                store = store._replace(wakes=True)
            jobs = tuple(sorted((*partition.jobs, Job(uid)), key=job_order))
            partition = partition._replace(jobs=jobs, asleep=False)
            if self.rules.arrivals_are_marked:
                assert call.source is not None
                partition = partition._replace(arrived=tuple(sorted((*partition.arrived, (uid, call.source)))))
        return self._put_back(store, call, partition), tuple(adopted)

    def retarget(self, store: Store, call: Call) -> Outcome:
        partition = self._fenced(store, call)
        if partition is None:
            return store, "fenced"
        moving = tuple((uid, max(to, call.number) if uid in call.uids else to) for uid, to in partition.moving)
        return self._put_back(store, call, partition._replace(moving=moving)), None

    def let_go(self, store: Store, call: Call) -> Outcome:
        partition = self._fenced(store, call)
        if partition is None:
            return store, "fenced"
        moving = tuple(each for each in partition.moving if each[0] not in call.uids)
        return self._put_back(store, call, partition._replace(moving=moving)), None

    def forget_arrived(self, store: Store, call: Call) -> Outcome:
        partition = self._fenced(store, call)
        if partition is None:
            return store, "fenced"
        gone = {(uid, call.source) for uid in call.uids}
        arrived = tuple(each for each in partition.arrived if each not in gone)
        return self._put_back(store, call, partition._replace(arrived=arrived)), None

    def arrivals(self, store: Store, call: Call) -> Outcome:
        partition = self.at(store, call.ref)
        return store, Arrivals(partition.arrived if partition else ())

    def still_aside(self, store: Store, call: Call) -> Outcome:
        partition = self.at(store, call.ref)
        aside = dict(partition.moving) if partition else {}
        return store, tuple(uid for uid in call.uids if uid in aside)

    def _fenced(self, store: Store, call: Call) -> Partition | None:
        """Return the partition with the leader's term on it; None if a newer leader has been there.

        What does not exist has no fence and refuses everything: it looks like a tombstone.
        """
        partition = self.at(store, call.ref)
        if partition is None or partition.state == "tombstone":
            return partition or Partition("absent")
        if partition.incarnation != call.incarnation or (partition.term > call.term and self.rules.moves_are_fenced):
            return None
        return partition._replace(term=max(call.term, partition.term))

    def _put_back(self, store: Store, call: Call, partition: Partition) -> Store:
        return store if partition.state in ("absent", "tombstone") else self.put(store, call.ref, partition)

    # ---- dead letters ---------------------------------------------------------------------------------------------

    def dead_letters(self, store: Store, call: Call) -> Outcome:
        partition = self.at(store, call.ref)
        return store, partition.dead if partition else ()

    def adopt_dead(self, store: Store, call: Call) -> Outcome:
        """Copy dead letters from an older version; the same again changes nothing."""
        partition = self.at(store, call.ref)
        if partition is None or partition.state == "tombstone":
            return store, False
        if partition.state != "active" and self.rules.dead_letters_need_active:
            return store, False
        apart = self.rules.dead_letters_stand_apart
        taken = [uid for uid in call.uids if apart or not self._lives(partition, self.ids[uid])]
        return self.put(store, call.ref, partition._replace(dead=tuple(sorted({*partition.dead, *taken})))), True

    def remove_dead(self, store: Store, call: Call) -> Outcome:
        partition = self.at(store, call.ref)
        if partition is None:
            return store, None
        dead = tuple(uid for uid in partition.dead if uid not in call.uids)
        return self.put(store, call.ref, partition._replace(dead=dead)), None
