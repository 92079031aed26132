"""The plan: versions that drain, from their closing to their end, and what keeps them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headrace_operator import steps
from headrace_operator.planning import Plan, plan
from headrace_operator.reasons import Event, Finding, Reason
from tests.unit.operator.scene import (
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

UNKNOWN = "deploy a worker that does, or give the type up with `headrace type delete`"
NOW_MS, MINUTE_MS = 10_000_000, 60_000


def test_older_versions_are_closed_then_completed() -> None:
    objects = (queue_version(1, phase="Draining"), queue_version(2, 8))
    spec = queue(2, 8, status=known(2, 8))

    def steps_for(**given: object) -> tuple[list[str], Plan]:
        held = filled(V2_OVER_V1, v1=counts(**{"state": "draining", **given}))  # type: ignore[arg-type]
        planned = plan(observed(spec, backend(V2_OVER_V1, counts=held), *objects))
        return kinds(planned), planned

    running, planned = steps_for(ready=2)
    assert running == []
    assert planned.draining == Finding(Reason.JOBS_REMAIN, "v1 holds 8 ready")
    assert planned.look_ms == 1500
    assert steps_for()[0] == ["CloseDrained"]
    waiting, planned = steps_for(state="closed", marked_at=999_000)
    assert waiting == ["ReportQueueVersion"]
    assert planned.draining is not None
    assert planned.draining.reason is Reason.CLIENTS_MAY_RETRY
    assert steps_for(state="closed", marked_at=900_000)[0][0] == "Complete"
    assert steps_for(state="closed", dead=1)[0][0] == "Complete"  # which moves them


def test_a_drain_that_times_out_ends_as_its_settings_say() -> None:
    spec = queue(2, 8, drain={"timeoutSeconds": 60, "onTimeout": "DeadLetter"})
    assert spec.spec is not None
    topology = replace(V2_OVER_V1, settings=spec.spec.settings())
    objects = (queue_version(1, phase="Draining"), queue_version(2, 8))

    def planned(marked_at: int) -> Plan:
        held = filled(topology, v1=counts("draining", scheduled=1, next_due_at=9_000_000, marked_at=marked_at))
        return plan(observed(spec, backend(topology, counts=held), *objects))

    early = planned(marked_at=950_000)
    assert "BuryWaiting" not in kinds(early)
    assert early.look_ms == 10_000
    late = planned(marked_at=940_000)
    (bury,) = [step for step in late.steps if isinstance(step, steps.BuryWaiting)]
    assert bury.event == Event(
        "Warning", Reason.DRAIN_TIMED_OUT, "v1 did not drain in time: 4 jobs are dead letters now"
    )


def test_a_version_whose_jobs_are_due_later_is_looked_at_later() -> None:
    held = filled(V2_OVER_V1, v1=counts("draining", scheduled=1, next_due_at=1_020_000))
    seen = observed(
        queue(2, 8), backend(V2_OVER_V1, counts=held), queue_version(1, phase="Draining"), queue_version(2, 8)
    )
    assert plan(seen).look_ms == 20_000


def test_a_removal_that_was_interrupted_goes_on() -> None:
    half = topology({1: (4, "removing"), 2: (8, "active")})
    held = filled(half, v1=counts("tombstone"))
    seen = observed(queue(2, 8), backend(half, counts=held), queue_version(1, phase="Drained"), queue_version(2, 8))
    assert kinds(plan(seen))[0] == "Complete"


@pytest.mark.parametrize(
    ("changes", "reason", "said"),
    [
        ({"ready": 3, "oldest_ready_at": NOW_MS - 11 * MINUTE_MS}, Reason.DRAIN_STUCK, "no worker takes it"),
        ({"ready": 3, "oldest_ready_at": NOW_MS - 9 * MINUTE_MS}, Reason.JOBS_REMAIN, "v1 holds 12 ready"),
        ({"leased": 1}, Reason.DRAIN_STUCK, "a worker still holds a job of it"),
        ({"leased": 1, "marked_at": NOW_MS - 10 * MINUTE_MS}, Reason.JOBS_REMAIN, "v1 holds 4 leased"),
        ({"scheduled": 2, "next_due_at": NOW_MS + 90_000}, Reason.JOBS_REMAIN, "the next one is due in 90 s"),
    ],
    ids=["ready-for-long", "ready-for-a-while", "held-for-long", "held-for-a-run", "not-due"],
)
def test_a_drain_whose_jobs_could_run_and_do_not_is_stuck_and_says_why(
    changes: dict[str, int], reason: Reason, said: str
) -> None:
    left = counts("draining", **({"marked_at": NOW_MS - 12 * MINUTE_MS, "now": NOW_MS} | changes))
    seen = observed(
        bumped(),
        backend(V2_OVER_V1, counts=filled(V2_OVER_V1, v1=left)),
        queue_version(1, phase="Draining"),
        queue_version(2, 8),
    )
    draining = plan(seen).draining
    assert draining is not None
    assert draining.reason is reason
    assert said in draining.message


def test_a_drain_that_waits_for_parked_jobs_names_their_types_and_what_to_do() -> None:
    def draining(types: dict[str, int], **given: int) -> Plan:
        held = filled(V2_OVER_V1, v1=counts("draining", parked=2, **given))
        seen = observed(
            bumped(),
            backend(V2_OVER_V1, counts=held, parked={1: types}),
            queue_version(1, phase="Draining"),
            queue_version(2, 8),
        )
        return plan(seen)

    alone = draining({"mail.old": 8})
    assert alone.draining == Finding(
        Reason.JOBS_PARKED, f"v1 holds 8 parked; no worker knows the type 'mail.old'; {UNKNOWN}"
    )
    assert alone.look_ms == 5_000
    # Jobs that run come first, but what waits beside them is said already.
    both = draining({"mail.old": 8}, leased=1)
    assert both.draining == Finding(
        Reason.JOBS_REMAIN, f"v1 holds 4 leased, 8 parked; no worker knows the type 'mail.old'; {UNKNOWN}"
    )
    assert both.look_ms == 1_500
    many = draining({f"t{number}" * 40: 1 for number in range(8)})
    assert many.draining is not None
    assert " and 5 more; deploy" in many.draining.message
    assert len(many.draining.message) < 400


def test_parked_jobs_of_the_active_version_are_told_in_the_same_words_while_their_number_grows() -> None:
    said = set()
    for jobs in (1, 7):
        held = backend(V1, counts=filled(V1, v1=counts(parked=jobs)), parked={1: {"b": jobs, "a": 1}})
        said.add(plan(observed(queue(), held, queue_version(1))).parked)
    assert said == {
        Finding(Reason.JOBS_PARKED, f"jobs wait apart because no worker knows the type 'a', 'b'; {UNKNOWN}")
    }
