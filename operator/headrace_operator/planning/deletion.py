"""The end of a Queue with deletionPolicy Drain or Delete, from its deletion until its finalizer is taken off.

Nothing is made anew here. What in Redis cannot be worked off or deleted stays there, as with Retain, so that a deletion
ends whatever has happened: the namespace ends, Redis does not answer, or the time is over.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

from headrace.settings import QueueSettings
from headrace.stores.base import Counts
from headrace.topology import Topology, Version
from headrace_operator.api.names import CONFIRM_DELETE, FINALIZER, FORCE_DELETE
from headrace_operator.api.queue_spec import QueueSpec
from headrace_operator.observed import Backend, Case, ConnectionProblem, Object, Observed
from headrace_operator.planning.claim import backend_lost, backend_refused
from headrace_operator.planning.decision import Plan
from headrace_operator.planning.drain import waits_for
from headrace_operator.planning.workers import remove_workers, scale
from headrace_operator.reasons import Event, Finding, Reason, normal, warning
from headrace_operator.steps import (
    Configure,
    Discard,
    RemoveQueue,
    RestoreTopology,
    SetFinalizers,
    Settle,
    Step,
)

LEAVING_SECONDS = 30.0
"""A Pod that is still there so long after its grace is not waited for."""
LOOK_MS = 1_000
TIME = "%Y-%m-%dT%H:%M:%SZ"
_NO_KEYS = ("absent", "tombstone")


def deletion(seen: Observed) -> Plan:
    """Decide what to do next about a Queue that is being deleted and has our finalizer."""
    queue, spec, backend = seen.queue, seen.queue.spec, seen.backend
    if queue.annotations.get(FORCE_DELETE) == "true":
        return _released(seen, f"the annotation {FORCE_DELETE} is set")
    if spec is None:
        return _released(seen, f"the spec cannot be understood ({queue.problem})")
    if spec.deletion_policy == "Retain":
        return _released(seen)
    if isinstance(backend, ConnectionProblem):
        return _without_redis(seen, spec, backend.finding, stalled=backend.stalled)
    case = Case(seen, spec, backend)
    if refused := backend_refused(case):
        return _without_redis(seen, spec, refused, stalled=True)
    topology = backend.topology
    if topology is None:
        return _without_topology(case)
    if dict(topology.owner) != dict(seen.owner):
        return _released(seen, "the queue in Redis has never been this Queue's")
    return _with_topology(case, topology)


def _with_topology(case: Case, topology: Topology) -> Plan:
    policy, queue = case.spec.deletion_policy, case.queue
    confirmed = policy == "Delete" and queue.annotations.get(CONFIRM_DELETE) == queue.uid
    ours = topology.settings.model_copy(update={"stop": case.spec.settings().stop})
    closed = topology.settings.model_copy(update={"stop": "hold_and_drain"})
    if confirmed or topology.deleting:
        return _removal(case, topology, with_jobs=True)
    if _holds_jobs(case.backend):
        # A confirmation is waited for as long as it takes; only a namespace that ends does not wait.
        if (why := _falls_back(case.seen, case.spec)) and (policy == "Drain" or case.seen.namespace_ends):
            reopened: list[Step] = [Configure(ours, case.seen.owner)] if topology.settings != ours else []
            return _released(case.seen, why, *reopened)
        if policy == "Delete":
            unconfirmed = Finding(
                Reason.DELETION_UNCONFIRMED,
                "the queue holds jobs; annotate the Queue with "
                f"{CONFIRM_DELETE}={queue.uid} to delete them, or set spec.deletionPolicy to Retain to keep them",
            )
            steps = (Configure(ours, case.seen.owner),) if topology.settings != ours else ()
            return Plan(steps, topology=unconfirmed, stalled=unconfirmed, look_ms=5_000)
        # Somebody has stopped the jobs on purpose: that holds until it is taken back.
        return _drain(case, topology, ours if ours.stop == "hold" else closed)
    if topology.settings != closed:
        return _under_way(case.seen, Configure(closed, case.seen.owner))
    if topology != case.seen.settled:
        return _under_way(case.seen, Settle(topology))
    return _removal(case, topology, with_jobs=False)


def _drain(case: Case, topology: Topology, settings: QueueSettings) -> Plan:
    until = _deadline(case.seen, case.spec).strftime(TIME)
    text = f"the Queue is deleted when its jobs are done; those that are left at {until} stay in Redis"
    if topology.settings != settings:
        begun = normal(Reason.DELETING, f"no jobs are taken any more; {text}")
        return _under_way(case.seen, Configure(settings, case.seen.owner, event=begun), text=text)
    if topology != case.seen.settled:
        return _under_way(case.seen, Settle(topology), text=text)
    if topology.settings.stop == "hold":
        text += "; the queue is paused: set spec.paused to false (or spec.stopPolicy to None) to let them run"
    holding = next(version for version in sorted(case.backend.counts) if _jobs(case.backend.counts[version]))
    counts, parked = case.backend.counts[holding], case.backend.parked.get(holding, {})
    remaining = waits_for(holding, counts, parked, "JobsRemain")
    if not _live(counts):
        remaining = Finding(Reason.JOBS_REMAIN, f"{remaining.message}; retry or delete them with `headrace dead`")
    return Plan(
        tuple(scale(case)),
        topology=Finding(Reason.DELETING, text),
        draining=remaining,
        look_ms=_look_ms(case.backend),
    )


def _removal(case: Case, topology: Topology, *, with_jobs: bool) -> Plan:
    """Return the plan that removes the queue from Redis, after its workers, which would write there again."""
    if steps := remove_workers(case.seen):
        return _under_way(case.seen, *steps)
    if any(not _overdue(case.seen, pod) for pod in case.seen.leaving):
        return _under_way(case.seen, text="the workers are ending")
    # A version that was provisioned and never promoted is not in the topology.
    surplus = {version: partitions for version, partitions in _held(case.backend).items() if version > topology.highest}
    if surplus:
        return _under_way(case.seen, *(Discard(version, partitions) for version, partitions in surplus.items()))
    removed = normal(Reason.REMOVED, f"queue {topology.queue!r} is removed from {case.backend.endpoint}")
    return _under_way(case.seen, RemoveQueue(topology, with_jobs, event=removed))


def _without_topology(case: Case) -> Plan:
    """Return the plan for a queue that Redis does not know (any more): what is left of it is removed."""
    held = _held(case.backend)
    if backend_lost(case):
        return _released(case.seen)
    if not held:
        return _released(case.seen, unlist=True)  # whoever has removed it may have died before that
    # Somebody has removed the topology, or a first version was never promoted: with one, the ordinary way goes on.
    status, active = case.queue.status, max(held)
    if status.active_version in held:
        active = status.active_version or active
    topology = Topology(
        case.queue.queue_name,
        (status.topology_epoch or 0) + 1,
        active,
        max(held),
        {v: Version(partitions, "active" if v == active else "draining") for v, partitions in held.items()},
        dict(case.seen.owner),
        case.spec.settings().model_copy(update={"stop": "hold_and_drain"}),
    )
    return _under_way(case.seen, RestoreTopology(None, topology))


def _without_redis(seen: Observed, spec: QueueSpec, finding: Finding, *, stalled: bool) -> Plan:
    if why := _falls_back(seen, spec):
        return _released(seen, f"{why}, and {finding.message}")
    until = _deadline(seen, spec).strftime(TIME)
    text = f"waits for Redis until {until}; then the Queue goes, and what is in Redis stays"
    return Plan(
        connection=finding,
        topology=Finding(Reason.DELETING, text),
        stalled=finding if stalled else None,
        look_ms=LOOK_MS,
    )


def _falls_back(seen: Observed, spec: QueueSpec) -> str | None:
    """Say why the deletion waits no longer for what cannot be removed now; None if it does."""
    if seen.namespace_ends:
        return "the namespace is being deleted"
    if seen.now >= _deadline(seen, spec):
        return "spec.drain.deletionTimeoutSeconds is over"
    return None


def _released(seen: Observed, why: str | None = None, *steps: Step, unlist: bool = False) -> Plan:
    """Return the plan that lets the Queue go; ``why`` what is in Redis stays there, if nobody asked for that."""
    event: Event | None = None
    if why is not None:
        event = warning(Reason.RETAINED, f"queue {seen.queue.queue_name!r} stays in Redis as it is: {why}")
    finalizers = tuple(name for name in seen.queue.finalizers if name != FINALIZER)
    last = SetFinalizers(finalizers, seen.queue.resource_version, unlist=unlist, event=event)
    return _under_way(seen, *steps, *remove_workers(seen, unowned=True), last)


def _under_way(seen: Observed, *steps: Step, text: str = "the Queue is being deleted") -> Plan:
    return Plan(steps, topology=Finding(Reason.DELETING, text), look_ms=LOOK_MS)


def _deadline(seen: Observed, spec: QueueSpec) -> datetime:
    return (seen.queue.deleted_at or seen.now) + timedelta(seconds=spec.drain.deletion_timeout_seconds)


def _overdue(seen: Observed, pod: Object) -> bool:
    """Whether a Pod is still there long after the end of its grace: its node may be lost."""
    ends = pod["metadata"].get("deletionTimestamp")
    return ends is not None and seen.now - datetime.fromisoformat(ends) > timedelta(seconds=LEAVING_SECONDS)


def _look_ms(backend: Backend) -> int:
    """Return when to look again: soon while jobs run or wait, later if those that are left are due later or dead."""
    soonest = 5_000
    for counts in backend.counts.values():
        for count in counts.values():
            if count.live > count.scheduled + count.retry + count.parked:
                return 1_500
            if count.next_due_at is not None:
                soonest = min(soonest, max(1_500, count.next_due_at - count.now))
    return soonest


def _held(backend: Backend) -> dict[int, int]:
    """Return the partitions of each version that Redis holds something of."""
    return {
        version: len(counts)
        for version, counts in backend.counts.items()
        if any(count.state not in _NO_KEYS for count in counts.values())
    }


def _holds_jobs(backend: Backend) -> bool:
    return any(_jobs(counts) for counts in backend.counts.values())


def _jobs(counts: Mapping[int, Counts]) -> bool:
    return any(count.live or count.dead for count in counts.values())


def _live(counts: Mapping[int, Counts]) -> bool:
    return any(count.live for count in counts.values())
