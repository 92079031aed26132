"""The demo: its checks find what is wrong, and on a cluster of the user's own it leaves nothing behind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import redis

from examples.demo import checks
from examples.demo.kube import DemoFailed
from examples.demo.setting import own_setting
from examples.demo.workload import Measure, Source, delays, source_tree, split
from headrace.stores.base import Counts
from tests.docs.blocks import ROOT
from tests.docs.reader import Reader
from tests.services.redis import RedisServer

FILES = [Source(name, b"", Measure(len(name), 1, name)) for name in ("a.py", "b.py")]
RESULTS = {f.path: {"size": len(f.path), "lines": 1, "sha256": f.path, "version": 1} for f in FILES}
GONE = Counts("tombstone", 0, 0, 0, 0, 0, 0, 0, 0, None, None, None, 0)
META, JOBS = "{headrace:stdlib:1:0}:meta", "{headrace:stdlib:1:0}:jobs"


def test_equal_results_hold() -> None:
    assert checks.check_results(FILES, RESULTS).holds
    assert checks.check_runs(FILES, {"a.py": 1, "b.py": 1}).holds
    assert checks.check_versions({1: 1, 2: 1}).holds
    assert checks.check_tombstones([GONE], [META], ["2:0", "11:0"], 1).holds
    assert checks.check_empty([GONE], 2).holds


@pytest.mark.parametrize(
    ("check", "problem"),
    [
        (checks.check_results(FILES, {"a.py": RESULTS["a.py"]}), "1 lost (b.py)"),
        (checks.check_results(FILES, RESULTS | {"c.py": RESULTS["a.py"]}), "1 not asked for (c.py)"),
        (checks.check_results(FILES, RESULTS | {"b.py": RESULTS["b.py"] | {"lines": 2}}), "1 wrong (b.py)"),
        (checks.check_runs(FILES, {"a.py": 2}), "1 never (b.py); 1 more than once (a.py)"),
        (checks.check_versions({1: 5}), "v2 ran none"),
        (checks.check_versions({2: 5}), "v1 ran none"),
        (checks.check_tombstones([GONE._replace(state="closed")], [META], [], 1), "partition 0 is closed"),
        (
            checks.check_tombstones([GONE], [META, "{headrace:stdlib:1:0}:jobs"], [], 1),
            "keys left: {headrace:stdlib:1:0}:jobs",
        ),
        (checks.check_tombstones([GONE], [META], ["1:0", "2:0"], 1), "hints left: 1:0"),
        (checks.check_empty([GONE._replace(leased=1)], 2), "partition 0: {'leased': 1}"),
    ],
)
def test_what_does_not_hold_is_named(check: checks.Check, problem: str) -> None:
    assert check.problem == problem


def test_arguments_start_nothing() -> None:
    for arguments, code, told in (("--help", 0, "DEMO_KUBECONFIG"), ("--fast", 2, "unrecognized arguments: --fast")):
        command = [sys.executable, "-m", "examples.demo", arguments]
        ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
        assert (ran.returncode, told in ran.stdout + ran.stderr) == (code, True)


def test_the_tree_is_measured_without_a_queue(tmp_path: Path) -> None:
    (tmp_path / "site-packages").mkdir()
    (tmp_path / "site-packages" / "installed.py").write_text("no")
    (tmp_path / "a.py").write_text("one\ntwo")
    (source,) = source_tree(tmp_path)
    assert source.path == "a.py"
    assert source.expected == Measure(7, 2, "21066d108d5319ecb5a1fc4454f42ef22fc5f1c7df49c31d90294950e0ea8b2c")


def test_the_standard_library_is_split_into_jobs_for_now_later_and_after() -> None:
    plan = split(list(source_tree()))
    assert len(plan.files) > 1000
    assert len({file.path for file in plan.files}) == len(plan.files)
    assert abs(len(plan.now) + len(plan.delayed) - len(plan.after)) <= 1
    assert 0 < len(plan.delayed) < len(plan.now)


def test_delays_are_spread() -> None:
    assert delays(3, 6, 12) == [6, 9, 12]
    assert delays(1, 6, 12) == [6]


def test_half_a_setting_is_refused(tmp_path: Path) -> None:
    assert own_setting({}) is None
    with pytest.raises(DemoFailed, match="DEMO_IMAGE, DEMO_REDIS_URL is not set"):
        own_setting({"DEMO_KUBECONFIG": str(tmp_path)})


def test_on_the_users_cluster_it_leaves_nothing_behind(reader: Reader) -> None:
    # What another test has let go of is no part of the comparison.
    reader.cluster.wait_for(lambda: "Terminating" not in namespaces(reader), 240, what="no namespace that ends")
    before = everything(reader)
    with RedisServer("valkey") as server:
        environment = dict(os.environ) | reader.cluster.environment()
        environment |= {
            "DEMO_KUBECONFIG": str(reader.cluster.kubeconfig),
            "DEMO_IMAGE": "registry.example/headrace-demo:1",
            "DEMO_REDIS_URL": server.url,
        }
        result = subprocess.run(
            [sys.executable, "-m", "examples.demo"],
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=400,
        )
        assert result.returncode == 0, result.stdout
        assert "Everything holds." in result.stdout
        with redis.Redis.from_url(server.url, decode_responses=True) as client:
            # An operator that stays may have other Queues there, so what belongs to all of them stays too.
            left = {"{headrace}:marker", "{headrace}:wakes"} if "queues.headrace.dev" in before else set()
            assert set(client.keys()) <= left
    assert everything(reader) == before


def namespaces(reader: Reader) -> str:
    return reader.cluster.kubectl("get", "namespaces")


def everything(reader: Reader) -> str:
    """Names of what the demo could leave in a cluster."""
    kinds = "namespaces,customresourcedefinitions,clusterroles,clusterrolebindings"
    found = reader.cluster.kubectl("get", kinds, "--output=name")
    return found + reader.cluster.kubectl("get", "roles,rolebindings", "--namespace=kube-system", "--output=name")
