"""The plan: what is done next, from what was observed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headrace_operator import steps
from headrace_operator.api.names import ACCEPT_BACKEND, PROMOTE, TAKE_OVER
from headrace_operator.api.queue_status import QueueStatus
from headrace_operator.observed import ConnectionProblem
from headrace_operator.planning import Plan, plan
from headrace_operator.reasons import Finding, Reason
from tests.unit.operator.scene import (
    MARKER,
    OWNER,
    PROVISIONED,
    V1,
    V2_OVER_V1,
    backend,
    bumped,
    counts,
    filled,
    kinds,
    known,
    observed,
    queue,
    queue_version,
    topology,
)


def test_a_queue_that_is_as_it_should_be_needs_nothing() -> None:
    planned = plan(observed(queue(), backend(V1), queue_version(1)))
    assert planned == Plan(look_ms=None)


def test_a_new_queue_is_marked_then_made_then_promoted() -> None:
    seen = observed(queue(), backend(marker=None))
    assert plan(seen).steps == (steps.WriteMarker(None),)
    seen = observed(queue(), backend())
    assert plan(seen).steps == (steps.CreateQueueVersion(1, 4),)
    seen = observed(queue(), backend(), queue_version(1, phase="Pending"))
    assert plan(seen).steps == (steps.Provision(None, 1, 4),)
    there = {1: dict.fromkeys(range(4), counts())}
    seen = observed(queue(promotion="Manual"), backend(counts=there), queue_version(1, phase="Pending"))
    (promote,) = plan(seen).steps
    assert isinstance(promote, steps.Promote)
    assert (promote.version, promote.partitions, promote.owner) == (1, 4, OWNER)


def test_a_bump_is_promoted_once_its_partitions_are_there() -> None:
    ready = observed(
        bumped(), backend(V1, counts=PROVISIONED), queue_version(1), queue_version(2, 8, phase="Provisioned")
    )
    assert kinds(plan(ready)) == ["Promote"]
    half = {**PROVISIONED, 2: {**PROVISIONED[2], 7: counts("absent")}}
    seen = replace(ready, backend=backend(V1, counts=half))
    assert kinds(plan(seen)) == ["Provision"]


def test_a_version_that_has_to_wait_is_told_to_be_provisioned() -> None:
    objects = (queue_version(1), queue_version(2, 8, phase="Pending"))
    waiting = plan(observed(bumped(promotion="Manual"), backend(V1, counts=PROVISIONED), *objects))
    assert kinds(waiting) == ["ReportQueueVersion"]
    assert waiting.topology is not None
    assert waiting.topology.reason is Reason.AWAITING_PROMOTION


def test_manual_promotion_waits_for_its_annotation_with_that_number() -> None:
    objects = (queue_version(1), queue_version(2, 8, phase="Provisioned"))
    spec = bumped(promotion="Manual")
    for value, expected in (("", []), ("1", []), ("2", ["Promote"])):
        asked = replace(spec, annotations={PROMOTE: value})
        planned = plan(observed(asked, backend(V1, counts=PROVISIONED), *objects))
        assert kinds(planned) == expected
        if not expected:
            assert planned.topology is not None
            assert planned.topology.reason is Reason.AWAITING_PROMOTION
            assert planned.stalled is None


def test_promotion_waits_while_it_would_leave_too_many_draining() -> None:
    held = topology({1: (4, "draining"), 2: (8, "active")})
    full = filled(held, v1=counts("draining", ready=1)) | {3: dict.fromkeys(range(4), counts())}
    objects = (queue_version(1, phase="Draining"), queue_version(2, 8), queue_version(3, phase="Provisioned"))
    for limit, expected in ((1, []), (2, ["Promote"])):
        spec = queue(3, 4, status=known(2, 8), maxDrainingVersions=limit)
        planned = plan(observed(spec, backend(held, counts=full), *objects))
        assert kinds(planned) == expected


@pytest.mark.parametrize(
    ("version", "partitions", "said"),
    [
        (1, 4, "spec.version is 1, but version 2 is active"),
        (2, 4, "spec.partitions is 4, but version 2 is active with 8"),
    ],
)
def test_what_slips_through_admission_stalls_and_touches_nothing(version: int, partitions: int, said: str) -> None:
    held = filled(V2_OVER_V1, v1=counts("draining", ready=1))
    spec = queue(version, partitions, leaseSeconds=99, workers={"image": "w", "app": "a:b"})
    objects = (queue_version(1, phase="Draining"), queue_version(2, 8))
    planned = plan(observed(spec, backend(V2_OVER_V1, counts=held), *objects))
    assert planned.steps == ()
    assert planned.stalled is not None
    assert planned.stalled.reason is Reason.INVALID_SPEC
    assert said in planned.stalled.message
    assert "set spec.version to 3" in planned.stalled.message


def test_a_spec_that_cannot_be_read_stalls_and_names_the_field() -> None:
    spec = queue(1, 4, surprise=True)
    planned = plan(observed(spec, backend(V1), queue_version(1)))
    assert planned.steps == ()
    assert planned.stalled is not None
    assert planned.stalled.reason is Reason.INVALID_SPEC
    assert "spec.surprise" in planned.stalled.message


def test_without_a_connection_nothing_is_touched() -> None:
    problem = Finding(Reason.UNREACHABLE, "no answer")
    seen = observed(queue(2, 8, workers={"image": "w", "app": "a:b"}), backend(V1), queue_version(1))
    planned = plan(replace(seen, backend=ConnectionProblem(problem)))
    assert planned == Plan(connection=problem, health=planned.health, unscaled=planned.unscaled)


def test_a_version_that_left_the_topology_is_completed_and_old_ones_are_forgotten() -> None:
    v9 = topology({9: (4, "active")})
    ended = [queue_version(n, phase="Completed") for n in (1, 2, 3)]
    seen = observed(
        queue(9, 4, historyLimit=2), backend(v9), *ended, queue_version(8, phase="Drained"), queue_version(9)
    )
    report, delete = plan(seen).steps
    assert isinstance(report, steps.ReportQueueVersion)
    assert (report.name, report.status.phase) == ("mail-v8", "Completed")
    assert delete == steps.DeleteQueueVersion("mail-v1", "uid-1")


def test_a_bump_that_was_undone_is_discarded_then_superseded_then_made_anew() -> None:
    undone = queue(1, 4, status=known())
    objects = (queue_version(1), queue_version(2, 8, phase="Provisioned"))
    assert plan(observed(undone, backend(V1, counts=PROVISIONED), *objects)).steps == (steps.Discard(2, 8),)
    gone = filled(V1) | {2: dict.fromkeys(range(8), counts("absent"))}
    (report,) = plan(observed(undone, backend(V1, counts=gone), *objects)).steps
    assert isinstance(report, steps.ReportQueueVersion)
    assert report.status.phase == "Superseded"
    again = queue(2, 16, status=known())
    superseded = (queue_version(1), queue_version(2, 8, phase="Superseded"))
    assert plan(observed(again, backend(V1, counts=gone), *superseded)).steps == (
        steps.DeleteQueueVersion("mail-v2", "uid-2"),
    )


def test_O1_a_missing_topology_is_rebuilt_with_what_still_holds_jobs() -> None:
    there = {
        1: dict.fromkeys(range(4), counts("draining", ready=1)),
        2: dict.fromkeys(range(8), counts()),
        0: {},
    }
    objects = (queue_version(1, phase="Draining"), queue_version(2, 8))
    planned = plan(observed(queue(2, 8, status=known(2, 8, epoch=6)), backend(counts=there), *objects))
    (restore,) = planned.steps
    assert isinstance(restore, steps.RestoreTopology)
    assert restore.read is None
    assert restore.topology == replace(V2_OVER_V1, epoch=7, versions=dict(V2_OVER_V1.versions))
    assert restore.event is not None
    assert restore.event.reason is Reason.TOPOLOGY_DRIFTED
    assert not planned.data_loss


def test_O1_a_promotion_that_nobody_noted_down_is_seen_in_the_partitions() -> None:
    there = {1: dict.fromkeys(range(4), counts("draining")), 2: dict.fromkeys(range(8), counts())}
    objects = (queue_version(1), queue_version(2, 8, phase="Provisioned"))
    (restore,) = plan(observed(queue(2, 8, status=known()), backend(counts=there), *objects)).steps
    assert isinstance(restore, steps.RestoreTopology)
    assert restore.topology.active == 2
    assert restore.topology.draining == (1,)


@pytest.mark.parametrize("marker", [None, "m2"])
def test_O2_an_emptied_redis_is_a_loss_and_rebuilt_one_epoch_higher(marker: str | None) -> None:
    objects = (queue_version(1, phase="Draining"), queue_version(2, 8))
    planned = plan(observed(queue(2, 8, status=known(2, 8, epoch=6)), backend(marker=marker), *objects))
    assert planned.data_loss
    assert planned.epoch_after == 7
    assert kinds(planned) == (["WriteMarker"] if marker is None else []) + ["ReportQueueVersion", "RestoreTopology"]
    if marker is None:
        assert planned.steps[0] == steps.WriteMarker(None)  # a new mark: other Queues on this Redis must see it
    failed, restore = planned.steps[-2:]
    assert isinstance(failed, steps.ReportQueueVersion)
    assert (failed.name, failed.status.phase) == ("mail-v1", "Failed")
    assert isinstance(restore, steps.RestoreTopology)
    assert (restore.topology.epoch, restore.topology.active, restore.topology.older) == (7, 2, ())


def test_O2_what_was_rebuilt_but_not_reported_is_not_rebuilt_again() -> None:
    rebuilt = replace(V2_OVER_V1, epoch=9)
    seen = observed(
        queue(2, 8, status=known(1, 4, epoch=6)),
        backend(rebuilt, "m2", counts=filled(rebuilt, v1=counts("draining", ready=1))),
        queue_version(1, phase="Draining"),
        queue_version(2, 8),
    )
    planned = plan(seen)
    assert planned.steps == ()
    assert not planned.data_loss


def test_a_missing_mark_beside_its_topology_is_written_again() -> None:
    planned = plan(observed(queue(status=known()), backend(V1, marker=None), queue_version(1)))
    assert planned.steps == (steps.WriteMarker(MARKER),)


def test_a_topology_of_an_older_epoch_is_replaced_forward() -> None:
    seen = observed(
        queue(2, 8, status=known(2, 8, epoch=9)),
        backend(V1, counts=filled(V1, v1=counts("draining"))),
        queue_version(1, phase="Draining"),
        queue_version(2, 8),
    )
    (restore,) = plan(seen).steps
    assert isinstance(restore, steps.RestoreTopology)
    assert (restore.read, restore.topology.epoch) == (V1, 10)
    assert (restore.topology.active, restore.topology.draining) == (2, (1,))


def test_O1_a_queue_that_was_created_again_stays_that_one() -> None:
    """Its partitions belong to the second queue of that name, and would refuse all that is said of the first."""
    again = replace(V1, incarnation=2)
    objects = (queue_version(1, phase="Draining"), queue_version(2, 8))
    seen = observed(queue(2, 8, status=known(2, 8, epoch=9)), backend(again, counts=filled(again)), *objects)
    (restore,) = plan(seen).steps
    assert isinstance(restore, steps.RestoreTopology)
    assert restore.topology.incarnation == 2
    # The topology is gone, with one partition: the others tell.
    there = {
        1: {0: counts("absent"), 1: counts("tombstone", incarnation=2)},
        2: dict.fromkeys(range(8), counts(incarnation=3)),
    }
    restore = plan(replace(seen, backend=backend(counts=there))).steps[-1]
    assert isinstance(restore, steps.RestoreTopology)
    assert (restore.read, restore.topology.incarnation) == (None, 3)


THEIRS = {**OWNER, "name": "post", "uid": "u9"}


@pytest.mark.parametrize(
    ("owner", "alive", "annotations", "claims"),
    [
        ({}, None, {}, True),
        ({**OWNER, "uid": "u0"}, False, {}, True),  # re-created
        (THEIRS, True, {}, False),
        (THEIRS, None, {}, False),
        (THEIRS, False, {}, True),
        ({**OWNER, "cluster": "c2"}, None, {}, False),
        ({**OWNER, "cluster": "c2"}, None, {TAKE_OVER: "u0"}, False),
        ({**OWNER, "cluster": "c2"}, None, {TAKE_OVER: "u1"}, True),
    ],
)
def test_a_queue_is_claimed_only_if_nobody_else_has_it(
    owner: dict[str, str], alive: bool | None, annotations: dict[str, str], claims: bool
) -> None:
    found = topology({1: (4, "active")}, owner=owner)
    planned = plan(observed(queue(annotations=annotations), backend(found, owner_alive=alive), queue_version(1)))
    if claims:
        (configure,) = planned.steps
        assert isinstance(configure, steps.Configure)
        assert configure.owner == OWNER
    else:
        assert planned.steps == ()
        assert planned.stalled is not None
        assert planned.stalled.reason is Reason.OWNED_BY_ANOTHER


def test_another_redis_is_refused_until_its_data_set_is_accepted() -> None:
    elsewhere = known().model_copy(
        update={"backend": known().backend.model_copy(update={"endpoint": "old:6379/0", "marker": "m0"})}  # type: ignore[union-attr]
    )

    def planned(status: QueueStatus, marker: str | None, accepted: str) -> Plan:
        return plan(observed(queue(status=status, annotations={ACCEPT_BACKEND: accepted}), backend(None, marker)))

    for marker, accepted in (("m1", ""), ("m1", "m2"), (None, ""), (None, "m1")):
        refused = planned(elsewhere, marker, accepted)
        assert refused.steps == ()
        assert refused.stalled is not None
        assert refused.stalled.reason is Reason.BACKEND_CHANGED
    assert kinds(planned(elsewhere, "m1", "m1")) == ["RestoreTopology"]
    taken = planned(elsewhere, None, "empty")
    assert kinds(taken) == ["RestoreTopology", "WriteMarker"]
    assert not taken.data_loss
    moved = elsewhere.model_copy(
        update={"backend": elsewhere.backend.model_copy(update={"marker": "m1"})}  # type: ignore[union-attr]
    )
    assert planned(moved, "m1", "").stalled is None  # the same data under another address


def test_changed_settings_are_configured_and_a_new_process_settles() -> None:
    seen = observed(queue(leaseSeconds=9, status=known()), backend(V1), queue_version(1))
    (configure,) = plan(seen).steps
    assert isinstance(configure, steps.Configure)
    assert configure.settings.lease_ms == 9000
    unsettled = observed(queue(status=known()), backend(V1), queue_version(1), settled=False)
    assert plan(unsettled).steps == (steps.Settle(V1),)
    hole = filled(V1)
    hole[1][2] = counts("absent")
    holed = observed(queue(status=known()), backend(V1, counts=hole), queue_version(1))
    assert plan(holed).steps == (steps.Settle(V1),)


def test_an_object_in_the_way_is_left_alone() -> None:
    for whose, reason in (("foreign", Reason.QUEUE_VERSION_CONFLICT), ("dying", Reason.WAITING_FOR_DELETION)):
        planned = plan(observed(queue(), backend(), queue_version(1, phase="Pending", ownership=whose)))  # type: ignore[arg-type]
        assert planned.steps == ()
        assert planned.topology is not None
        assert planned.topology.reason is reason
        assert (planned.stalled is None) == (reason is Reason.WAITING_FOR_DELETION)
    orphan = plan(observed(queue(), backend(), queue_version(1, phase="Pending", ownership="orphan")))
    assert orphan.steps == (steps.AdoptQueueVersion("mail-v1", "uid-1"),)


def test_an_active_version_that_drains_already_needs_a_higher_one() -> None:
    planned = plan(observed(queue(), backend(V1, counts=filled(V1, v1=counts("draining", ready=1))), queue_version(1)))
    assert planned.stalled is not None
    assert planned.stalled.reason is Reason.TOPOLOGY_CONFLICT
    assert "set spec.version to 2" in planned.stalled.message
