"""The benchmarks run: one small round of ours against a real server, by the command that `make bench` uses."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

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


def test_an_unknown_benchmark_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "bench", "B99"]
    done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True, timeout=240)
    assert done.returncode == 2
    assert "B1" in done.stderr
