"""The benchmarks of the operator run: one small round on a control plane of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.b11_repartition import throughput_dip
from tests.services.bench import run_bench


@pytest.mark.timeout(300)
def test_a_repartition_under_load_is_measured_and_loses_and_doubles_nothing(tmp_path: Path) -> None:
    found = run_bench(tmp_path, "B11", "--jobs", "900", "--option", "rate=300", timeout=280)
    values = {check.what: check.value for check in found.checks}
    assert values["lost, jobs"] == 0
    assert values["doubled, jobs"] == 0
    assert values["old version gone, s"] is not None
    # Producers may resend for so long; a version that goes earlier has not waited for them.
    assert values["old version gone, s"] >= 4.9
    assert values["dip, %"] is not None


@pytest.mark.timeout(300)
def test_an_operator_with_many_queues_is_measured(tmp_path: Path) -> None:
    found = run_bench(tmp_path, "B13", "--jobs", "5", "--option", "seconds=1", timeout=280)
    assert all(check.value is not None for check in found.checks)
    values = {one.case: one.median for one in found.ours}
    assert 0 < values["apply to Ready p50"] <= values["apply to Ready p99"]
    assert values["idle memory, MiB"] > 10


@pytest.mark.parametrize(
    ("missing", "dip"),
    [pytest.param(0, 0.0, id="steady"), pytest.param(25, 25.0, id="a-quarter-less-in-one-second")],
)
def test_the_dip_is_the_slowest_second_after_the_change_against_those_before(missing: int, dip: float) -> None:
    ends = [second * 1000 + n * 10 for second in range(12) for n in range(100)]
    in_the_dip = {8000 + n * 10 for n in range(missing)}
    before, found = throughput_dip([end for end in ends if end not in in_the_dip], changed=6000)
    assert before == pytest.approx(100)
    assert found == pytest.approx(dip)
