"""The benchmark of scaling runs: a small round of ours, on the cluster of the tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import b14_scaling_reaction, machine
from bench.ours import subject
from bench.report import Result, markdown
from bench.rig import Rig
from bench.server import BenchServer
from tests.cluster.cluster import LocalCluster


@pytest.mark.timeout(300)
def test_B14_runs_without_KEDA_and_counts_every_job(
    cluster: LocalCluster, installed: str, namespace: str, tmp_path: Path
) -> None:
    options = {"pods": "2", "descent": "decree"}
    with BenchServer("valkey") as server:
        rig = Rig(server, subject(), [], {}, 1, machine.describe(), None, options, alone=True)
        found = b14_scaling_reaction.measure(rig, cluster, namespace, tmp_path, peer=False)
    assert Result.model_validate_json(found.model_dump_json()) == found
    assert found.title in markdown(found)
    assert (found.id, found.peers) == ("B14", ())
    times = {one.case: one.median for one in found.ours if one.unit == "s"}
    assert 0 < times["from zero to replicas patched"] < times["from zero to first job"]
    counted = {check.what: check.value for check in found.checks if check.what.startswith("2 Pods")}
    assert len(counted) == 3
    assert set(counted.values()) == {0.0}
    assert all(one.jobs >= 20 for one in found.ours if one.unit == "jobs")
    beside = [check for check in found.checks if "keda" in check.what]
    assert len(beside) == 2
    assert all(check.value is None and check.met is None for check in beside)
