"""Whoever takes jobs out by hand: the sequences of `headrace.withdrawal` and `headrace.purging`, and their steps."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from tests.simulation.actors import Move
from tests.simulation.moving import MovingSteps, Outcome
from tests.simulation.rules import Rules
from tests.simulation.values import Call, Enqueue, History, Ref, Reply, Store, Topology, counted, route


class RemovingSteps(MovingSteps):
    """The part of a `tests.simulation.store.Machine` that removes live jobs."""

    def withdraw(self, store: Store, call: Call) -> Outcome:
        """Remove the live job with the id of ``uid``; where it was, "" if there is none. Its lease ends with it."""
        partition, job_id = self.at(store, call.ref), self.ids[call.uid]
        if partition is None:
            return store, ""
        if aside := [uid for uid, _ in partition.moving if self.ids[uid] == job_id]:
            if self.rules.withdraw_spares_moving:
                return store, "moving"
            left = partition._replace(moving=tuple(each for each in partition.moving if each[0] not in aside))
            return self._dropped(self.put(store, call.ref, left), aside), "ready"
        found = [job for job in partition.jobs if self.ids[job.uid] == job_id]
        if not found:
            return store, ""
        left = partition._replace(jobs=tuple(job for job in partition.jobs if job not in found))
        store = self._dropped(self.put(store, call.ref, left), [job.uid for job in found])
        return store, "leased" if found[0].token else "ready"

    def purge(self, store: Store, call: Call) -> Outcome:
        """Remove the jobs that are ready; how many."""
        partition = self.at(store, call.ref)
        if partition is None:
            return store, 0
        gone = [job for job in partition.jobs if job.token is None or not self.rules.purge_spares_leased]
        left = partition._replace(jobs=tuple(job for job in partition.jobs if job not in gone))
        history = store.history
        for job in gone:
            history = history._replace(purged=counted(history.purged, job.uid))
        return self.put(store, call.ref, left)._replace(history=history), len(gone)

    @staticmethod
    def _dropped(store: Store, uids: Iterable[int]) -> Store:
        dropped = store.history.dropped
        for uid in uids:
            dropped = counted(dropped, uid)
        return store._replace(history=store.history._replace(dropped=dropped))


class WithdrawerState(NamedTuple):
    """``at``: read, look, check (has a version come meanwhile?) or over. ``live``: uids that were live when it began.

    ``left``: partitions to look at, ``moving``: it was on its way somewhere. ``unknown``: how it ended.
    """

    at: str = "read"
    topology: Topology | None = None
    left: tuple[Ref, ...] = ()
    moving: bool = False
    live: tuple[int, ...] | None = None
    unknown: bool = False


class Withdrawer:
    """Cancels the job of an id, once."""

    name = "C"

    def __init__(self, uid: int, enqueues: Iterable[Enqueue], rules: Rules) -> None:
        self.uid = uid
        self.rules = rules
        self._ids = [enqueue.id for enqueue in enqueues]

    def start(self) -> WithdrawerState:
        return WithdrawerState()

    def moves(self, local: WithdrawerState, store: Store) -> Iterable[Move]:
        if local.at in ("read", "check"):
            known = local if local.live is not None else local._replace(live=self._live(store.history))
            yield Move(known, Call("read_topology"))
        elif local.at == "look":
            yield Move(local, Call("withdraw", local.left[0], uid=self.uid))

    def _live(self, history: History) -> tuple[int, ...]:
        """For the property only: the jobs of its id that are live now."""
        same = [uid for uid, job_id in enumerate(self._ids) if job_id == self._ids[self.uid]]
        return tuple(uid for uid in same if history.accepted[uid] and not history.ends(uid))

    def reply(self, local: WithdrawerState, call: Call, reply: Reply) -> WithdrawerState:
        if call.method == "read_topology":
            assert isinstance(reply, Topology)
            known = local.topology
            if local.at == "check" and known is not None and self._numbers(known) == self._numbers(reply):
                return local._replace(at="over", topology=None, unknown=True)
            return self._looking(local, reply)
        if reply not in ("", "moving"):
            return local._replace(at="over", topology=None, left=(), moving=False)
        left, moving = local.left[1:], local.moving or reply == "moving"
        if left:
            return local._replace(left=left, moving=moving)
        if moving:
            return local._replace(at="read", topology=None, left=(), moving=False)
        if self.rules.withdraw_reads_again:
            return local._replace(at="check", left=())
        return local._replace(at="over", topology=None, left=(), unknown=True)

    def _looking(self, local: WithdrawerState, topology: Topology) -> WithdrawerState:
        versions = sorted(topology.versions, reverse=not self.rules.withdraw_oldest_first)
        left = tuple(route(self._ids[self.uid], version) for version in versions)
        return local._replace(at="look", topology=topology, left=left)

    @staticmethod
    def _numbers(topology: Topology) -> set[int]:
        return {version.number for version in topology.versions}

    def unknown(self, local: WithdrawerState, call: Call) -> WithdrawerState | None:
        return None

    def crash(self, local: WithdrawerState) -> WithdrawerState | None:
        return None


class PurgerState(NamedTuple):
    """``left``: partitions to purge; None before it began."""

    left: tuple[Ref, ...] | None = None


class Purger:
    """Purges what is ready, once: each partition until nothing more is found there."""

    name = "X"

    def start(self) -> PurgerState:
        return PurgerState()

    def moves(self, local: PurgerState, store: Store) -> Iterable[Move]:
        if local.left is None:
            yield Move(local, Call("read_topology"))
        elif local.left:
            yield Move(local, Call("purge", local.left[0]))

    def reply(self, local: PurgerState, call: Call, reply: Reply) -> PurgerState:
        if local.left is None:
            assert isinstance(reply, Topology)
            return PurgerState(tuple(ref for version in reply.versions for ref in reply.refs(version.number)))
        return local if reply else PurgerState(local.left[1:])

    def unknown(self, local: PurgerState, call: Call) -> PurgerState | None:
        return None

    def crash(self, local: PurgerState) -> PurgerState | None:
        return None
