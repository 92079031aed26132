"""The benchmarks run: one small round of ours against a real server, by the command that `make bench` uses."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from bench.report import OURS, find
from tests.services.bench import ROOT, run_bench


@pytest.mark.parametrize(
    ("id", "jobs"), [("B1", "500"), ("B2", "500"), ("B6", "2000"), ("B7", "500"), ("B8", "20"), ("B10", "500")]
)
def test_a_benchmark_runs_without_peers_and_leaves_their_targets_open(tmp_path: Path, id: str, jobs: str) -> None:
    found = run_bench(tmp_path, id, "--jobs", jobs)
    assert found.id == id
    assert found.ours
    assert found.peers == ()
    assert all(one.median > 0 for one in found.ours)
    against_peers = [check for check in found.checks if check.what.split(": ")[-1].startswith("headrace / ")]
    assert all(check.met is None and check.value is None for check in against_peers)
    assert all(check.value is not None for check in found.checks if check not in against_peers)
    assert found.missing["bullmq"] == "left out by --no-peers" if against_peers else True
    assert found.versions["server"].split()[0] in ("redis", "valkey")


def test_B4_schedules_far_and_near_jobs_and_waits_for_the_near_ones_alone(tmp_path: Path) -> None:
    options = ("--option", "due=50", "--option", "seconds=1")
    found = run_bench(tmp_path, "B4", "--jobs", "500", *options)
    for case in ("p1", "p8"):
        late = [find(found.ours, OURS, f"{case} {part}") for part in ("p50", "p99", "max")]
        assert [one.jobs for one in late if one is not None] == [50, 50, 50]
        medians = [one.median for one in late if one is not None]
        assert medians[0] > 0
        assert medians == sorted(medians)
    assert all(check.value is not None for check in found.checks)
    assert "500 jobs scheduled a day ahead; 50 due per second for 1 s." in found.notes


def test_an_unknown_benchmark_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "bench", "B99"]
    done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True, timeout=240)
    assert done.returncode == 2
    assert "B1" in done.stderr
