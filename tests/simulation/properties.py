"""R1 to R5, R7 and R8 of the store protocol, V12 and V13 where settings are concerned: predicates on a state."""

from __future__ import annotations

from collections import Counter

from tests.simulation.deletion import DeleterState
from tests.simulation.producer import Producer, ProducerState
from tests.simulation.removing import WithdrawerState
from tests.simulation.sequences import KeeperState
from tests.simulation.sleeper import SleeperState
from tests.simulation.worker import WorkerState
from tests.simulation.world import Model, World


def invariant(model: Model, world: World) -> str | None:
    """Return which property is broken, None if all hold."""
    return (
        _one_place(model, world)
        or _valid_leases(model, world)
        or _settings(model, world)
        or _agreed(model, world)
        or _woken(model, world)
        or _missed(world)
    )


def _one_place(model: Model, world: World) -> str | None:
    """R1, R3, R4: where the live jobs and the dead letters are."""
    store, ids = world.store, model.machine.ids
    listed = {version.number for version in store.topology.versions} if store.topology else set()
    incarnation = store.topology.incarnation if store.topology else 0
    places: Counter[int] = Counter()
    reached: Counter[int] = Counter()
    letters: Counter[int] = Counter()
    history = store.history
    ended = {uid for uid in range(len(history.accepted)) if history.ends(uid)}
    here = {job.uid for partition in store.partitions if partition for job in partition.jobs}
    aside: dict[int, bool] = {}  # set aside and nowhere else: it lives there, in whatever number of partitions
    for ref, partition in zip(model.machine.refs, store.partitions, strict=True):
        if partition is None:
            continue
        waiting = {uid for uid, _ in partition.moving if uid not in here and uid not in ended}
        if (partition.jobs or waiting) and partition.state not in ("active", "draining"):
            return f"R4 a {partition.state} partition holds a job"
        for job in partition.jobs:
            places[job.uid] += 1
            reached[job.uid] += ref.version in listed and partition.incarnation == incarnation
        for uid in waiting:
            aside[uid] = aside.get(uid, False) or (ref.version in listed and partition.incarnation == incarnation)
        for uid in partition.dead:
            letters[uid] += ref.version in listed
    for uid, listed_there in aside.items():
        places[uid] += 1
        reached[uid] += listed_there
    for uid, accepted in enumerate(history.accepted):
        ends = history.ends(uid)
        if accepted > 1:
            return "R3 one enqueue call was applied twice"
        if ends > 1:
            return "R3 one job ended twice"
        if places[uid] != accepted - ends:
            return "R1 a job is lost" if places[uid] < accepted - ends else "R1 a job is in two places"
        # What a failover has made the topology forget is out of sight until somebody writes it again.
        if reached[uid] != places[uid] and world.budget.forgets == model.setting.budget.forgets:
            return "R1 a job is lost in a version that no worker visits"
        if letters[uid] < history.died[uid]:  # while it moves there are two
            return "R1 a dead letter is lost"
    for number in range(model.producers):
        role, local = model.roles[number], world.actors[number]
        assert isinstance(role, Producer)
        assert isinstance(local, ProducerState)
        for uid, enqueue in role.calls[: 0 if local.crashed else local.done]:
            if uid in local.failed:
                if history.accepted[uid]:
                    return "R1 an enqueue call was reported as refused, but was applied"
            elif uid in local.unsure:
                if not model.setting.oversleeps:
                    return "R5 a call ended as OutcomeUnknown although the store answered"
            elif not enqueue.given and not history.accepted[uid]:
                return "R1 an enqueue call was reported as applied, but was not"
    live = Counter(ids[uid] for uid in places)
    if any(number > 1 for number in live.values()):
        return "R3 an id is live twice"
    return None


def _valid_leases(model: Model, world: World) -> str | None:
    """R2: what a worker runs is leased to it unless its lease ended; and no lease is unknown to its living worker."""
    for number in model.workers:
        local = world.actors[number]
        assert isinstance(local, WorkerState)
        if local.held:
            assert local.at is not None
            partition = model.machine.at(world.store, local.at)
            leased = {(job.uid, job.token) for job in partition.jobs} if partition else set()
            for uid, token in local.held:
                taken = (uid, token) in world.store.history.recovered or world.store.history.dropped[uid]
                if (uid, token) not in leased and not taken:
                    return "R2 a running job was taken from its worker although its lease had not ended"
    for partition in world.store.partitions:
        for job in partition.jobs if partition else ():
            if job.token and not job.expired and not model.holds(world, job.token):
                local = world.actors[job.token.worker]
                assert isinstance(local, WorkerState)
                if job.token.seq >= local.born:
                    return "R5 a job waits for the end of a lease that its living worker does not know of"
    return None


def _settings(model: Model, world: World) -> str | None:
    """After `configure` has returned, no active partition and no job follows older settings, of whatever version.

    Unless a failover has forgotten that edit.
    """
    topology = world.store.topology
    settled = max((local.settled for local in world.actors if isinstance(local, KeeperState)), default=0)
    if not settled or topology is None or settled in world.store.history.forgotten:
        return None
    for version in topology.versions:
        for ref in topology.refs(version.number):
            partition = model.machine.at(world.store, ref)
            if partition and (partition.state == "active" or partition.jobs) and partition.settings < settled:
                return "V12 a partition follows settings from before a configure that has returned"
    return None


def _agreed(model: Model, world: World) -> str | None:
    """When `configure` has returned, each partition of its topology goes by the settings, whatever was forgotten."""
    topology = world.store.topology
    for local in world.actors:
        if isinstance(local, KeeperState) and topology is not None and local.agreed == topology:
            for version in topology.versions:
                for ref in topology.refs(version.number):
                    partition = model.machine.at(world.store, ref)
                    takes = partition and partition.state in ("active", "draining") and partition.epoch
                    if partition and takes and partition.settings != topology.settings:
                        return "V13 a partition goes by other settings than the edit that has just returned"
    return None


def _woken(model: Model, world: World) -> str | None:
    """R7: a job in a queue without workers has told so, is about to, or its producer died in between."""
    store = world.store
    if not model.setting.sleeps or world.budget.crashes < model.setting.budget.crashes:
        return None
    asleep = any(isinstance(local, SleeperState) and local.at == "asleep" for local in world.actors)
    if not asleep or store.wakes or not any(partition and partition.jobs for partition in store.partitions):
        return None
    producers = [local for local in world.actors if isinstance(local, ProducerState)]
    if any(local.telling or local.lost for local in producers):
        return None
    return "R7 a job waits in a queue without workers, and nobody says so"


def _missed(world: World) -> str | None:
    """A job that is live all the time is not reported as unknown to whoever cancels it."""
    for local in world.actors:
        if isinstance(local, WithdrawerState) and local.unknown:
            history = world.store.history
            if any(not history.ends(uid) for uid in local.live or ()):
                return "R8 a job that was live all the time was not found by whoever cancels it"
    return None


def good(model: Model, world: World) -> bool:
    """R5: everything enqueued has run, every older version is gone, nothing is left over."""
    store = world.store
    history = store.history
    deleted = any(isinstance(local, DeleterState) and local.at == "over" for local in world.actors)
    if world.network or (store.topology.deleting if store.topology else not deleted):
        return False
    for number, role in enumerate(model.roles):
        local = world.actors[number]
        if isinstance(role, Producer) and isinstance(local, ProducerState) and local.done < len(role.calls):
            return False
    if any(accepted != history.ends(uid) for uid, accepted in enumerate(history.accepted)):
        return False
    if store.topology is None:  # what a promoter that died has installed may be left over, empty
        crashes = model.setting.budget.crashes
        return all(crashes or partition is None or partition.state == "tombstone" for partition in store.partitions)
    return not model.setting.keepers or _tidy(model, world)


def _tidy(model: Model, world: World) -> bool:
    topology = world.store.topology
    assert topology is not None
    if topology.older:
        return False
    for ref in topology.refs(topology.active):
        partition = model.machine.at(world.store, ref)
        agrees = partition and (partition.state, partition.partitions, partition.settings)
        if agrees != ("active", topology.partitions, topology.settings) or (partition and partition.arrived):
            return False
    leftovers = set(model.machine.refs) - {ref for v in topology.versions for ref in topology.refs(v.number)}
    if not model.setting.budget.crashes:
        for ref in leftovers:
            partition = model.machine.at(world.store, ref)
            if partition and partition.state != "tombstone":
                return False
    return True
