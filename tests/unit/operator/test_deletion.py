"""What becomes of a Queue with a finalizer when it is deleted: decided from values."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from headrace.topology import Topology
from headrace_operator import steps
from headrace_operator.api.names import CONFIRM_DELETE, FINALIZER, FORCE_DELETE
from headrace_operator.observed import Backend, ConnectionProblem, Observed, QueueObject, WorkersObject
from headrace_operator.planning import Plan, plan
from headrace_operator.reasons import Finding, Reason
from headrace_operator.status import build_status
from tests.unit.operator.scene import (
    NOW,
    OWNER,
    backend,
    counts,
    filled,
    known,
    observed,
    queue,
    queue_version,
    topology,
)

WORKERS = {"image": "w", "app": "a:b"}
V1 = topology({1: (4, "active")})
UNREACHABLE = ConnectionProblem(Finding(Reason.UNREACHABLE, "redis does not answer"))


def deleted(policy: str, *, seconds_ago: float = 10, finalizers: tuple[str, ...] = (), **spec: Any) -> QueueObject:
    annotations = spec.pop("annotations", {})
    since = (NOW - timedelta(seconds=seconds_ago)).isoformat()
    metadata = {"finalizers": [*finalizers, FINALIZER], "deletionTimestamp": since}
    return queue(
        spec.pop("version", 1),
        deletionPolicy=policy,
        annotations=annotations,
        metadata=metadata,
        status=known(),
        **spec,
    )


def stopped(there: Topology) -> Topology:
    return replace(there, settings=there.settings.model_copy(update={"stop": "hold_and_drain"}))


def seen(spec: QueueObject, there: Backend | ConnectionProblem, **fields: Any) -> Observed:
    if isinstance(there, ConnectionProblem):
        return replace(observed(spec, backend(V1), queue_version(1), **fields), backend=there)
    return observed(spec, there, queue_version(1), **fields)


def holding(there: Topology, **given: int) -> Backend:
    return backend(there, counts=filled(there, v1=counts(**given)))  # type: ignore[arg-type]


def released(planned: Plan, *kept: str) -> str | None:
    """The reason why jobs stay ("" if none is told), if the plan lets the Queue go; None if it does not."""
    for step in planned.steps:
        if isinstance(step, steps.SetFinalizers):
            assert step.finalizers == kept
            if step.event is None:
                return ""
            assert step.event.reason is Reason.RETAINED
            return step.event.message
    return None


def deployment(spec: QueueObject, *, owned: bool) -> WorkersObject:
    metadata: dict[str, Any] = {"name": "mail-workers", "uid": "d1", "resourceVersion": "5"}
    if owned:
        metadata["ownerReferences"] = [{"kind": "Queue", "apiVersion": "headrace.dev/v1alpha1", "uid": "u1"}]
    return WorkersObject({"kind": "Deployment", "metadata": metadata, "spec": {"replicas": 1}}, "ours")


@pytest.mark.parametrize("policy", ["Drain", "Delete"])
def test_a_queue_that_has_to_be_undone_has_a_finalizer_before_anything_is_made(policy: str) -> None:
    spec = queue(deletionPolicy=policy, metadata={"finalizers": ["other/one"]})
    assert plan(observed(spec, backend())).steps == (steps.SetFinalizers(("other/one", FINALIZER), "70"),)
    unreachable = replace(observed(spec, backend()), backend=UNREACHABLE)
    assert plan(unreachable).steps == (steps.SetFinalizers(("other/one", FINALIZER), "70"),)
    assert plan(observed(queue(), backend())).steps == (steps.CreateQueueVersion(1, 4),)


def test_K7_drain_refuses_new_jobs_keeps_the_workers_and_removes_the_queue_when_it_is_empty() -> None:
    spec = deleted("Drain", workers=WORKERS)
    workers = deployment(spec, owned=False)
    (configure,) = plan(seen(spec, holding(V1, ready=2), workers=workers)).steps
    assert isinstance(configure, steps.Configure)
    assert configure.settings.stop == "hold_and_drain"
    assert configure.owner == OWNER

    closed = stopped(V1)
    assert plan(seen(spec, holding(closed, ready=2), workers=workers, settled=False)).steps == (steps.Settle(closed),)
    waiting = plan(seen(spec, holding(closed, ready=2), workers=workers))
    assert waiting.steps == ()
    assert waiting.draining == Finding(Reason.JOBS_REMAIN, "v1 holds 8 ready")
    assert waiting.look_ms == 1500
    dead = plan(seen(spec, holding(closed, dead=1), workers=workers))
    assert dead.steps == ()
    assert dead.draining == Finding(Reason.JOBS_REMAIN, "v1 holds 4 dead; retry or delete them with `headrace dead`")

    empty = seen(spec, holding(closed), workers=workers)
    beside = [steps.DeleteObject(kind, "mail-workers", f"c{n}") for n, kind in enumerate(empty.companions or {})]
    assert plan(empty).steps == (steps.DeleteObject("Deployment", "mail-workers", "d1"), *beside)
    gone: dict[str, Any] = {"companions": {}}
    pod = {"metadata": {"name": "p", "deletionTimestamp": NOW.isoformat()}}
    assert plan(seen(spec, holding(closed), leaving=({"metadata": {"name": "p"}},), **gone)).steps == ()
    assert plan(seen(spec, holding(closed), leaving=(pod,), **gone)).steps == ()
    lost = {"metadata": {"name": "p", "deletionTimestamp": (NOW - timedelta(seconds=31)).isoformat()}}
    for leaving in ((), (lost,)):
        (remove,) = plan(seen(spec, holding(closed), leaving=leaving, **gone)).steps
        assert isinstance(remove, steps.RemoveQueue)
        assert remove.topology == closed
    nothing = backend(None, counts={1: dict.fromkeys(range(4), counts("tombstone"))})
    over = plan(seen(spec, nothing, **gone))
    assert released(over) == ""
    (last,) = over.steps
    assert isinstance(last, steps.SetFinalizers)
    assert last.unlist  # whoever has removed the topology may have died before that


def test_K7_the_workers_of_a_draining_queue_are_still_scaled() -> None:
    spec = deleted("Drain", workers=WORKERS, scaling={"mode": "Manual", "replicas": 3})
    (scale,) = plan(seen(spec, holding(stopped(V1), ready=1), workers=deployment(spec, owned=False))).steps
    assert isinstance(scale, steps.Scale)
    assert scale.replicas == 3


def test_O49_a_paused_queue_is_not_run_and_does_not_wait_for_ever() -> None:
    spec = deleted("Drain", paused=True)
    held = replace(V1, settings=V1.settings.model_copy(update={"stop": "hold"}))
    planned = plan(seen(spec, holding(held, ready=1)))
    assert planned.steps == ()
    assert planned.topology is not None
    assert "set spec.paused to false" in planned.topology.message
    over = plan(seen(deleted("Drain", paused=True, seconds_ago=3601), holding(held, ready=1)))
    assert "deletionTimeoutSeconds is over" in (released(over) or "")


def test_K7_a_drain_that_takes_too_long_leaves_the_jobs_and_opens_the_queue_again() -> None:
    spec = deleted("Drain", seconds_ago=61, drain={"deletionTimeoutSeconds": 60}, workers=WORKERS)
    over = plan(seen(spec, holding(stopped(V1), scheduled=1), workers=deployment(spec, owned=False)))
    configure = over.steps[0]
    assert isinstance(configure, steps.Configure)
    assert configure.settings.stop == "none"
    assert steps.DeleteObject("Deployment", "mail-workers", "d1") in over.steps
    assert "deletionTimeoutSeconds is over" in (released(over) or "")
    assert isinstance(over.steps[-1], steps.SetFinalizers)
    still = deleted("Drain", seconds_ago=59, drain={"deletionTimeoutSeconds": 60})
    assert released(plan(seen(still, holding(stopped(V1), scheduled=1)))) is None


def test_O3_jobs_are_deleted_only_if_the_uid_confirms_it() -> None:
    for given in ({}, {CONFIRM_DELETE: "u2"}, {CONFIRM_DELETE: "true"}):
        spec = deleted("Delete", annotations=given, seconds_ago=1e6)
        for jobs in (holding(V1, ready=1), holding(V1, dead=1)):
            planned = plan(seen(spec, jobs))
            assert planned.steps == ()
            assert planned.stalled is not None
            assert planned.stalled.reason is Reason.DELETION_UNCONFIRMED
            assert f"{CONFIRM_DELETE}=u1" in planned.stalled.message
    confirmed = deleted("Delete", annotations={CONFIRM_DELETE: "u1"})
    (remove,) = plan(seen(confirmed, holding(V1, ready=1))).steps
    assert isinstance(remove, steps.RemoveQueue)
    empty = deleted("Delete")
    (configure,) = plan(seen(empty, holding(V1))).steps
    assert isinstance(configure, steps.Configure)
    assert configure.settings.stop == "hold_and_drain"
    (remove,) = plan(seen(empty, holding(stopped(V1)))).steps
    assert isinstance(remove, steps.RemoveQueue)
    # A job came between the look and the stop: the queue goes on as the spec says.
    (back,) = plan(seen(empty, holding(stopped(V1), ready=1))).steps
    assert isinstance(back, steps.Configure)
    assert back.settings.stop == "none"


def test_with_retain_or_by_force_a_deletion_ends_at_once() -> None:
    changed = deleted("Retain", finalizers=("other/one",))
    assert released(plan(seen(changed, holding(V1, ready=1))), "other/one") == ""
    for there in (holding(V1, ready=1), UNREACHABLE):
        forced = deleted("Delete", annotations={FORCE_DELETE: "true"}, workers=WORKERS)
        planned = plan(seen(forced, there, workers=deployment(forced, owned=False)))
        assert FORCE_DELETE in (released(planned) or "")
        assert planned.steps[0] == steps.DeleteObject("Deployment", "mail-workers", "d1")
        owned = plan(seen(forced, there, workers=deployment(forced, owned=True), companions={}))
        assert len(owned.steps) == 1
    odd = deleted("Drain", surprise=1)
    assert "spec.surprise" in (released(plan(seen(odd, UNREACHABLE))) or "")


@pytest.mark.parametrize("policy", ["Drain", "Delete"])
def test_O5_O31_O35_without_redis_a_deletion_waits_for_its_time_and_in_an_ending_namespace_not_at_all(
    policy: str,
) -> None:
    waiting = plan(seen(deleted(policy), UNREACHABLE))
    assert waiting.steps == ()
    assert waiting.connection == UNREACHABLE.finding
    assert waiting.topology is not None
    assert waiting.topology.reason is Reason.DELETING
    over = plan(seen(deleted(policy, seconds_ago=3601), UNREACHABLE))
    assert "redis does not answer" in (released(over) or "")
    ending = plan(seen(deleted(policy), UNREACHABLE, namespace_ends=True))
    assert "the namespace is being deleted" in (released(ending) or "")


@pytest.mark.parametrize("policy", ["Drain", "Delete"])
def test_O35_in_an_ending_namespace_jobs_stay_and_an_empty_queue_goes(policy: str) -> None:
    jobs = plan(seen(deleted(policy), holding(V1, ready=1), namespace_ends=True))
    assert "the namespace is being deleted" in (released(jobs) or "")
    empty = plan(seen(deleted(policy), holding(stopped(V1)), namespace_ends=True)).steps
    assert [type(step) for step in empty] == [steps.RemoveQueue]


@pytest.mark.parametrize("policy", ["Drain", "Delete"])
def test_O34_what_was_never_this_queues_is_not_touched(policy: str) -> None:
    confirmed = {CONFIRM_DELETE: "u1"}
    for owner in ({}, {**OWNER, "uid": "u0"}, {**OWNER, "name": "post", "uid": "u9"}):
        theirs = topology({1: (4, "active")}, owner=owner)
        planned = plan(seen(deleted(policy, annotations=confirmed), holding(theirs)))
        assert "never been this Queue's" in (released(planned) or "")
        assert len(planned.steps) == 1
    elsewhere = known().model_copy(
        update={"backend": known().backend.model_copy(update={"endpoint": "old:6379/0", "marker": "m0"})}  # type: ignore[union-attr]
    )
    moved = replace(deleted(policy, annotations=confirmed), status=elsewhere)
    planned = plan(seen(moved, holding(V1)))
    assert planned.steps == ()
    assert planned.connection is not None
    assert planned.connection.reason is Reason.BACKEND_CHANGED


def test_a_queue_that_redis_has_lost_is_not_built_again_to_be_removed() -> None:
    assert released(plan(seen(deleted("Drain"), backend(None, "m2")))) == ""
    assert released(plan(seen(deleted("Drain"), backend(None)))) == ""


def test_what_a_removed_topology_left_behind_is_drained_too() -> None:
    left = {1: dict.fromkeys(range(4), counts("draining", ready=1)), 2: dict.fromkeys(range(2), counts())}
    spec = replace(deleted("Drain", version=2), status=known(2, 2))
    (restore,) = plan(seen(spec, backend(None, counts=left))).steps
    assert isinstance(restore, steps.RestoreTopology)
    written = restore.topology
    assert (written.active, written.older, written.epoch) == (2, (1,), 6)
    assert (written.settings.stop, dict(written.owner)) == ("hold_and_drain", OWNER)
    # A first version that was provisioned and never promoted leaves empty partitions.
    begun = replace(deleted("Delete"), status=known().model_copy(update={"active_version": None}))
    (restore,) = plan(seen(begun, backend(None, counts={1: dict.fromkeys(range(4), counts())}))).steps
    assert isinstance(restore, steps.RestoreTopology)
    assert restore.topology.active == 1


def test_O37_a_queue_in_deletion_gets_nothing_new() -> None:
    bumped = deleted("Drain", version=3, workers=WORKERS)
    for there in (holding(V1, ready=1), holding(stopped(V1), ready=1), holding(stopped(V1))):
        for step in plan(seen(bumped, there, companions={})).steps:
            assert isinstance(step, steps.Configure | steps.Settle | steps.RemoveQueue)


def test_the_status_says_what_a_deletion_waits_for() -> None:
    draining = seen(deleted("Drain"), holding(stopped(V1), ready=2))
    status = build_status(draining, plan(draining))
    ready, told = status.condition("Ready"), status.condition("Draining")
    assert ready is not None
    assert told is not None
    assert (ready.status, ready.reason) == ("False", "Deleting")
    assert "2026-01-02T04:03:55Z" in ready.message
    assert (told.status, told.message) == ("True", "v1 holds 8 ready")
    refused = seen(deleted("Delete"), holding(V1, ready=2))
    stalled = build_status(refused, plan(refused)).condition("Stalled")
    assert stalled is not None
    assert (stalled.status, stalled.reason) == ("True", "DeletionUnconfirmed")


def test_a_queue_that_somebody_deletes_in_redis_is_removed_and_made_anew() -> None:
    condemned = replace(V1, deleting=True)
    (remove,) = plan(observed(queue(status=known()), backend(condemned), queue_version(1))).steps
    assert remove == steps.RemoveQueue(condemned, with_jobs=True)
    theirs = replace(condemned, owner={**OWNER, "name": "post", "uid": "u9"})
    assert plan(observed(queue(status=known()), backend(theirs, owner_alive=True), queue_version(1))).steps == ()
    # In deletion it is finished whatever the policy waits for.
    (remove,) = plan(seen(deleted("Drain"), holding(condemned, ready=1))).steps
    assert isinstance(remove, steps.RemoveQueue)


def test_a_version_that_was_provisioned_and_never_promoted_is_discarded_first() -> None:
    there = backend(stopped(V1), counts=filled(V1) | {2: dict.fromkeys(range(8), counts())})
    assert plan(seen(deleted("Drain", version=2), there)).steps == (steps.Discard(2, 8),)
