"""Queue.status: the conditions, and what is worth a write."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from headrace_operator.api.names import ACK_DATA_LOSS
from headrace_operator.api.queue_status import Depth, QueueStatus
from headrace_operator.observed import ConnectionProblem, Observed
from headrace_operator.phase import phase_of
from headrace_operator.planning import plan
from headrace_operator.reasons import Finding, Reason
from headrace_operator.status import build_status, patch, to_write
from tests.unit.operator.scene import NOW, backend, counts, filled, known, observed, queue, queue_version, topology
from tests.unit.operator.test_convergence import World

V1 = topology({1: (4, "active")})
V2 = topology({1: (4, "draining"), 2: (8, "active")})


def status_of(seen: Observed, failure: Finding | None = None) -> QueueStatus:
    return build_status(seen, plan(seen), failure)


def states(status: QueueStatus) -> dict[str, tuple[str, str]]:
    return {condition.type: (condition.status, condition.reason) for condition in status.conditions}


def well(**fields: Any) -> Observed:
    return observed(queue(**fields), backend(V1), queue_version(1))


def test_a_queue_that_is_well_says_so() -> None:
    status = status_of(well())
    assert states(status) == {
        "Ready": ("True", "Ready"),
        "Reconciling": ("False", "Settled"),
        "Stalled": ("False", "Settled"),
        "Conflict": ("False", "NoConflict"),
        "ConnectionReady": ("True", "Connected"),
        "UnsafeRedis": ("False", "Safe"),
        "TopologyApplied": ("True", "Applied"),
        "Paused": ("False", "NotPaused"),
        "Draining": ("False", "NotDraining"),
        "DataLoss": ("False", "NoDataLoss"),
    }
    assert {condition.observed_generation for condition in status.conditions} == {7}
    assert (status.observed_generation, status.active_version, status.active_partitions) == (7, 1, 4)
    assert (status.topology_epoch, status.target_version) == (5, 1)
    assert status.backend is not None
    assert (status.phase, status.drift) == ("Active", None)


def test_it_is_ready_while_an_older_version_drains() -> None:
    held = filled(V2, v1=counts("draining", ready=2, oldest_ready_at=1_700_000_000_999))
    seen = observed(queue(2, 8), backend(V2, counts=held), queue_version(1, phase="Draining"), queue_version(2, 8))
    status = status_of(seen)
    assert states(status)["Ready"] == ("True", "Ready")
    assert states(status)["Draining"] == ("True", "JobsRemain")
    assert status.depth == Depth(ready=8)
    assert status.oldest_ready_at is not None
    assert status.oldest_ready_at.timestamp() == 1_700_000_000
    assert [(v.version, v.phase) for v in status.versions] == [(1, "Draining"), (2, "Active")]


def test_parked_jobs_are_counted_apart() -> None:
    held = filled(V1, v1=counts(ready=1, parked=3))
    status = status_of(observed(queue(), backend(V1, counts=held), queue_version(1)))
    assert status.depth == Depth(ready=4, parked=12)


def test_without_a_connection_the_last_facts_stay() -> None:
    before = status_of(well())
    problem = Finding(Reason.UNREACHABLE, "no answer")
    seen = replace(well(status=before), backend=ConnectionProblem(problem))
    status = status_of(seen)
    assert states(status)["Ready"] == ("False", "Unreachable")
    assert states(status)["Reconciling"] == ("True", "Unreachable")
    assert states(status)["Stalled"] == ("False", "Settled")
    assert states(status)["TopologyApplied"] == ("Unknown", "ConnectionNotReady")
    assert (status.active_version, status.topology_epoch, status.depth) == (1, 5, before.depth)
    assert status.backend == before.backend


def test_what_stalls_needs_somebody_and_is_not_under_way() -> None:
    status = status_of(observed(queue(0, 4), backend(V1), queue_version(1)))
    assert states(status) == {
        "Ready": ("False", "InvalidSpec"),
        "Reconciling": ("False", "InvalidSpec"),
        "Stalled": ("True", "InvalidSpec"),
    }
    refused = status_of(well(), Finding(Reason.INVALID_WORKERS, "no such field"))
    assert states(refused)["Stalled"] == ("True", "InvalidWorkers")
    assert states(refused)["TopologyApplied"] == ("True", "Applied")


def test_O2_a_loss_is_told_before_it_is_repaired_and_until_it_is_acknowledged() -> None:
    lost = observed(queue(status=known(epoch=5)), backend(None, "m2"), queue_version(1))
    told = status_of(lost)
    assert states(told)["Ready"] == ("False", "TopologyLost")
    assert states(told)["DataLoss"] == ("True", "TopologyLost")
    # What the rebuild is made from is still there, should the operator die now.
    assert (told.topology_epoch, told.backend) == (5, known().backend)
    assert told.data_loss_epoch == 6

    rebuilt = backend(replace(V1, epoch=6), "m2")
    after = status_of(observed(queue(status=told), rebuilt, queue_version(1)))
    assert states(after)["Ready"] == ("True", "Ready")
    assert states(after)["DataLoss"] == ("True", "TopologyLost")
    assert after.backend is not None
    assert (after.topology_epoch, after.backend.marker) == (6, "m2")
    for value, expected in (("5", "True"), ("yes", "True"), ("6", "False"), ("7", "False")):
        seen = observed(queue(status=after, annotations={ACK_DATA_LOSS: value}), rebuilt, queue_version(1))
        assert states(status_of(seen))["DataLoss"][0] == expected


def test_a_condition_keeps_its_time_until_its_status_changes() -> None:
    before = status_of(well())
    later = NOW + timedelta(minutes=5)
    same = status_of(replace(well(status=before), now=later))
    assert {c.last_transition_time for c in same.conditions} == {NOW}
    problem = ConnectionProblem(Finding(Reason.UNREACHABLE, "no answer"))
    worse = status_of(replace(well(status=before), now=later, backend=problem))
    times = {c.type: c.last_transition_time for c in worse.conditions}
    assert (times["Ready"], times["Stalled"]) == (later, NOW)


def with_depth(**sizes: int) -> QueueStatus:
    return status_of(well()).model_copy(update={"depth": Depth(**sizes)})


def test_E13_measurements_alone_are_written_seldom_and_only_if_they_moved() -> None:
    before = with_depth(ready=100)
    for sizes, moved in (
        ({"ready": 100}, False),
        ({"ready": 115}, False),
        ({"ready": 126}, True),
        ({"ready": 0}, True),
    ):
        after = with_depth(**sizes)
        assert not to_write(before, after, measured_due=False)
        assert to_write(before, after, measured_due=True) == moved
    assert to_write(before, with_depth(ready=100, dead=1), measured_due=True)
    assert to_write(QueueStatus(), before, measured_due=False)


def test_the_message_of_a_drain_is_no_reason_to_write() -> None:
    def draining(ready: int) -> QueueStatus:
        held = filled(V2, v1=counts("draining", ready=ready))
        return status_of(
            observed(queue(2, 8), backend(V2, counts=held), queue_version(1, phase="Draining"), queue_version(2, 8))
        )

    assert draining(10).condition("Draining") != draining(11).condition("Draining")
    assert not to_write(draining(10), draining(11), measured_due=True)


def test_a_patch_holds_what_changed_and_removes_what_is_gone() -> None:
    before = with_depth(ready=1).model_copy(update={"replicas": 3})
    after = with_depth(ready=2)
    assert patch(before, after) == {
        "depth": {"ready": 2, "scheduled": 0, "retry": 0, "inFlight": 0, "parked": 0, "dead": 0},
        "replicas": None,
    }
    assert patch(after, after) == {}


UNREACHABLE = ConnectionProblem(Finding(Reason.UNREACHABLE, "redis redis:6379/0 does not answer"))
HELD = backend(replace(V1, settings=queue(paused=True).spec.settings()))  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("seen", "phase"),
    [
        pytest.param(observed(queue(), backend()), "Pending", id="new"),
        pytest.param(replace(well(), backend=UNREACHABLE), "Pending", id="new-without-redis"),
        pytest.param(well(), "Active", id="well"),
        pytest.param(observed(queue(paused=True), HELD, queue_version(1)), "Paused", id="paused"),
        pytest.param(
            observed(queue(2, 8), backend(V2), queue_version(1, phase="Draining"), queue_version(2, 8)),
            "Progressing",
            id="steps-left",
        ),
        pytest.param(
            observed(
                queue(2, 8),
                backend(V2, counts=filled(V2, v1=counts("draining", ready=1))),
                queue_version(1, phase="Draining"),
                queue_version(2, 8),
            ),
            "Draining",
            id="older-versions",
        ),
        pytest.param(replace(well(status=known()), backend=UNREACHABLE), "Degraded", id="redis-away"),
        pytest.param(observed(queue(partitions=8), backend(V1), queue_version(1)), "Stalled", id="contradiction"),
    ],
)
def test_the_phase_is_what_the_conditions_come_down_to(seen: Observed, phase: str) -> None:
    assert status_of(seen).phase == phase


def test_a_queue_that_goes_says_so_first_of_all() -> None:
    status = status_of(observed(queue(partitions=8), backend(V1), queue_version(1)))
    assert phase_of(status, deleting=True) == "Deleting"
    assert phase_of(QueueStatus(), deleting=False) == "Pending"


def test_whoever_claims_what_is_the_queues_is_a_conflict_whatever_else_is_wrong() -> None:
    stranger = replace(V1, owner={"cluster": "c", "namespace": "other", "name": "mail", "uid": "theirs"})
    taken = status_of(observed(queue(), backend(stranger, owner_alive=True), queue_version(1)))
    assert states(taken)["Conflict"] == ("True", "OwnedByAnother")
    assert taken.phase == "Stalled" or taken.active_version is None
    lost = status_of(replace(well(status=known()), backend=UNREACHABLE))
    assert states(lost)["Conflict"] == ("Unknown", "ConnectionNotReady")


async def test_what_was_put_right_last_is_told_and_stays_told() -> None:
    world = World()
    await world.create()
    await world.rest()
    assert "drift" not in world.queue["status"]
    world.lose_topology()
    await world.rest()
    told = world.queue["status"]["drift"]
    assert told["what"].startswith("the topology was changed by somebody else: ")
    assert world.queue["status"]["phase"] == "Active"
    await world.rest()  # by operators that know nothing of it
    assert world.queue["status"]["drift"] == told
