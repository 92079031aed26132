"""The plan: everything to do next about one Queue, in order, and what stands in the way.

Level-triggered: it depends on what is, not on what happened. Steps that build on the outcome of another one are left
to the plan after it, so that each is decided from what is really there.
"""

from __future__ import annotations

from dataclasses import replace

from headrace.topology import Topology
from headrace_operator.api.names import FINALIZER
from headrace_operator.observed import Backend, Case, ConnectionProblem, Observed
from headrace_operator.planning.claim import backend_accepted, backend_lost, backend_refused, ownership_refused
from headrace_operator.planning.decision import Plan
from headrace_operator.planning.deletion import deletion
from headrace_operator.planning.drain import drain, next_look_ms
from headrace_operator.planning.leader import LOOK_MS as LEADER_LOOK_MS
from headrace_operator.planning.leader import leadership
from headrace_operator.planning.parked import parked
from headrace_operator.planning.promotion import promotion, spec_refused
from headrace_operator.planning.restore import difference, restored
from headrace_operator.planning.safety import unsafe_redis
from headrace_operator.planning.stop import stop_event
from headrace_operator.planning.versions import failed_versions, keep_versions
from headrace_operator.planning.worker_health import worker_health
from headrace_operator.planning.workers import (
    grace_advice,
    hampered,
    idle_drain,
    not_scaled,
    scaling_limit,
    workers,
)
from headrace_operator.reasons import Event, Finding, Reason, normal, warning
from headrace_operator.steps import Configure, RemoveQueue, RestoreTopology, SetFinalizers, Settle, Step, WriteMarker

WAITS = (Reason.WAITING_FOR_DELETION, Reason.AWAITING_PROMOTION, Reason.TOO_MANY_DRAINING)
"""Findings that end by themselves or by a decision: nothing is wrong."""


def plan(observed: Observed) -> Plan:
    """Decide what to do next about one Queue. No steps: everything is as it can be now."""
    backend = observed.backend
    instead_of = backend.instead_of if isinstance(backend, Backend) else None
    doubt = None if instead_of is None else instead_of.finding
    if observed.queue.deleted_at is not None:
        return replace(deletion(observed), doubt=doubt)
    decided, health = _decide(observed), worker_health(observed)
    dangers, led = unsafe_redis(observed), leadership(observed)
    expected = (decided.look_ms, health.look_ms if health else None, LEADER_LOOK_MS if led else None)
    looks = [look for look in expected if look is not None]
    return replace(
        decided,
        doubt=doubt,
        unsafe=dangers,
        stalled=decided.stalled or (doubt if instead_of is not None and instead_of.stalled else None),
        health=health,
        unscaled=not_scaled(observed) or hampered(observed),
        limited=scaling_limit(observed),
        led=led,
        advice=grace_advice(observed),
        look_ms=min(looks, default=None),
    )


def _decide(observed: Observed) -> Plan:
    queue, backend = observed.queue, observed.backend
    if queue.spec is None:
        invalid = Finding(Reason.INVALID_SPEC, f"{queue.problem}; correct the spec")
        return Plan(topology=invalid, stalled=invalid)
    if queue.spec.deletion_policy != "Retain" and FINALIZER not in queue.finalizers:
        # First of all: whatever is made from here on has to be undone.
        return Plan((SetFinalizers((*queue.finalizers, FINALIZER), queue.resource_version),))
    if isinstance(backend, ConnectionProblem):
        return Plan(connection=backend.finding, stalled=backend.finding if backend.stalled else None)
    case = Case(observed, queue.spec, backend)
    if queue.spec.connection is not None and queue.spec.connection.strict and (refused := unsafe_redis(observed)):
        return Plan(connection=refused, stalled=refused)
    if refused := backend_refused(case):
        return Plan(connection=refused, stalled=refused)
    topology = backend.topology
    if topology is not None and (refused := ownership_refused(case, topology)):
        return Plan(topology=refused, stalled=refused)

    if topology is not None and topology.deleting:
        # Somebody deletes the queue and not the Queue: once that has ended, the queue is made anew.
        return Plan((RemoveQueue(topology, with_jobs=True),), topology=_deleted(topology))
    return _repair(case) or _advance(case)


def _deleted(topology: Topology) -> Finding:
    return Finding(Reason.TOPOLOGY_DRIFTED, f"queue {topology.queue!r} is being deleted in Redis; it is made anew then")


def _repair(case: Case) -> Plan | None:
    """Return the plan that puts mark, topology, owner and settings right; None if they are."""
    spec, backend, topology = case.spec, case.backend, case.backend.topology
    lost, accepted = backend_lost(case), backend_accepted(case)
    mark: list[Step] = []
    if backend.marker is None:
        known = case.queue.status.backend
        mark = [WriteMarker(None if known is None or lost or accepted else known.marker)]
    target = restored(case, lost=lost)
    if target is not None:
        told = _told(case, target, lost=lost)
        restore = RestoreTopology(topology, target, event=told, drift=told.reason is Reason.TOPOLOGY_DRIFTED)
        # A new mark comes first, so that every Queue on this Redis sees the loss, whatever happens to us. Only on a
        # Redis that was accepted while it had no mark, it comes last: the consent names the state without one.
        steps = [restore, *mark] if accepted else [*mark, *failed_versions(case, target.versions), restore]
        reason = Reason.TOPOLOGY_LOST if lost else Reason.TOPOLOGY_DRIFTED
        return Plan(
            tuple(steps),
            topology=Finding(reason, f"the topology of queue {target.queue!r} is being written again"),
            data_loss=lost and not accepted,
            epoch_after=target.epoch,
        )
    if topology is not None:
        settings, owner = spec.settings(), dict(case.seen.owner)
        stranger = dict(topology.owner) != owner
        missing = any(count.state == "absent" for count in backend.counts.get(topology.active, {}).values())
        if spec_refused(case) is None and (topology.settings != settings or stranger):
            told = normal(Reason.CLAIMED, f"queue {topology.queue!r} on {backend.endpoint} is this Queue's now")
            mark.append(Configure(settings, owner, event=told if stranger else stop_event(topology.settings, settings)))
        elif topology != case.seen.settled or missing:
            mark.append(Settle(topology))
    return Plan(tuple(mark)) if mark else None


def _told(case: Case, target: Topology, *, lost: bool) -> Event:
    backend = case.backend
    if backend_accepted(case):
        return normal(Reason.CLAIMED, f"begun anew on {backend.endpoint}; written: {target.summary()}")
    if lost:
        return warning(
            Reason.TOPOLOGY_LOST,
            f"{backend.endpoint} has lost the queue and the jobs in it; written: {target.summary()}",
        )
    return warning(
        Reason.TOPOLOGY_DRIFTED,
        f"the topology was changed by somebody else: {difference(backend.topology, target)}",
    )


def _advance(case: Case) -> Plan:
    """Return the plan that goes on from a topology that is right: promote, drain, workers."""
    spec, backend, topology = case.spec, case.backend, case.backend.topology
    steps: list[Step] = []
    finding, draining = spec_refused(case), None
    contradicts = finding is not None
    if not contradicts:
        steps, finding = promotion(case)
    if topology is not None:
        more, draining = drain(backend, topology)
        draining = idle_drain(case, draining)
        steps += more
        steps += keep_versions(case, topology)
        if finding is None and _dead_end(case, topology):
            finding = Finding(
                Reason.TOPOLOGY_CONFLICT,
                f"partitions of the active v{topology.active} drain already, so it takes no jobs; set spec.version to "
                f"{topology.highest + 1}",
            )
    in_the_way = None
    if topology is not None and not contradicts:
        more, in_the_way = workers(case)
        steps += more
    if not steps and in_the_way is None and spec.deletion_policy == "Retain" and FINALIZER in case.queue.finalizers:
        # Last of all: only now everything that was made goes with the Queue by itself.
        kept = tuple(name for name in case.queue.finalizers if name != FINALIZER)
        steps.append(SetFinalizers(kept, case.queue.resource_version))
    hard = next((f for f in (finding, in_the_way) if f is not None and f.reason not in WAITS), None)
    waits = any(f is not None and f.reason is Reason.WAITING_FOR_DELETION for f in (finding, in_the_way))
    return Plan(
        tuple(_once(steps)),
        topology=finding,
        workers=in_the_way,
        draining=draining,
        parked=parked(backend),
        stalled=hard,
        look_ms=1_000 if waits else next_look_ms(backend),
    )


def _dead_end(case: Case, topology: Topology) -> bool:
    counts = case.backend.counts.get(topology.active, {})
    return any(count.state in ("draining", "closed", "tombstone") for count in counts.values())


def _once(steps: list[Step]) -> list[Step]:
    unique: list[Step] = []
    for step in steps:
        if step not in unique:
            unique.append(step)
    return unique
