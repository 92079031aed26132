"""What Python subjects measure with: stamps of jobs that become due, and where a measurement ends."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

import pytest

from bench.peers.python.meter import STAMP, Due, Meter, emptied_plainly, scheduled, scheduled_plainly

NEAR = {"jobs": 1200, "after": 60.0, "span": 3.0}


def test_scheduled_jobs_are_due_evenly_and_stamped_with_that_time_on_the_monotonic_clock() -> None:
    found: list[Due] = []

    async def many(dues: Sequence[Due]) -> None:
        found.extend(dues)

    wall, boot = time.time(), time.time_ns() - time.monotonic_ns()
    report = asyncio.run(scheduled(NEAR, many, version="1"))
    assert (report["jobs"], report["version"], len(found)) == (1200, "1", 1200)
    first = found[0][0]
    assert first >= int(wall * 1000) + 60_000
    assert [due_ms - first for due_ms, _ in found] == [number * 3000 // 1200 for number in range(1200)]
    # One difference between the two clocks for all, and the one that this process sees, but for a step of a clock.
    (apart,) = {due_ms * 10**6 - int(text.removeprefix(STAMP)) for due_ms, text in found}
    assert abs(apart - boot) < 10**9


def test_jobs_that_are_due_before_all_are_enqueued_are_refused() -> None:
    with pytest.raises(RuntimeError, match="the first of 2 jobs was due before the last was enqueued"):
        scheduled_plainly({"jobs": 2, "after": -1.0, "span": 1.0}, lambda due_ms, text: None)


def test_a_job_that_starts_before_it_is_due_is_early_by_a_negative_time() -> None:
    meter = Meter({"jobs": 2}, lambda: None)
    for seconds in (-100, 100):
        meter.started(f"{STAMP}{time.monotonic_ns() + seconds * 10**9}")
    late, early = meter.report()["values_ms"]
    assert early < 0 < late


@pytest.mark.parametrize(("leave", "asked"), [(True, 0), (False, 3)])
def test_a_measurement_that_leaves_the_rest_does_not_ask_for_it(leave: bool, asked: int) -> None:
    answers = [2, 1, 0]
    emptied_plainly(Meter({"jobs": 1, "leave": leave}, lambda: None), lambda: answers.pop(0))
    assert len(answers) == 3 - asked
