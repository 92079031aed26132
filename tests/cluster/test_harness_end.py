"""Nothing is left behind: after a stop, a SIGTERM, and when the harness itself is killed."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cluster.cluster import LocalCluster
from tests.cluster.control_plane import API_SERVER, ControlPlane, ControlPlaneError
from tests.cluster.manifests import container, pod

pytestmark = pytest.mark.cluster

# A child in the group that ignores SIGTERM, as some do.
FAMILY = """
import os, signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
os.fork()
print("up", flush=True)
while True: signal.pause()
"""


def processes_of(folder: Path) -> list[int]:
    """Processes that have the folder in their command line or environment, which all of a cluster's have."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):
                text = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
                if str(folder).encode() in text:
                    found.append(int(entry.name))
    return found


def wait_until(condition: Callable[[], bool], deadline: float = 60.0) -> None:
    end = time.monotonic() + deadline
    while not condition():
        assert time.monotonic() < end, "the condition did not come true"
        time.sleep(0.05)


@pytest.fixture
def foreground() -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """`python -m tests.cluster up` with a Pod in it: the process and the cluster's folder."""
    command = [sys.executable, "-m", "tests.cluster", "up"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert process.stdout is not None
    try:
        lines = [process.stdout.readline() for _ in range(3)]
        exports = dict(line.removeprefix("export ").strip().split("=", 1) for line in lines if "export" in line)
        folder = Path(exports["KUBECONFIG"]).parent
        manifest = json.dumps(pod("family", container(FAMILY)))
        env = {"KUBECONFIG": exports["KUBECONFIG"], "PATH": exports["PATH"].strip("'"), "HOME": str(folder)}

        def kubectl(*args: str, stdin: str | None = None) -> str:
            return subprocess.run(
                ["kubectl", *args], env=env, input=stdin, capture_output=True, text=True, check=True, timeout=60
            ).stdout

        kubectl("apply", "--filename=-", stdin=manifest)
        kubectl("wait", "pod/family", "--for=condition=Ready", "--timeout=60s")
        wait_until(lambda: kubectl("logs", "family").count("up") == 2)
        yield process, folder
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_nothing_is_left_when_the_harness_is_killed(foreground: tuple[subprocess.Popen[str], Path]) -> None:
    process, folder = foreground
    # Four components, two processes of the Pod, and the harness's own kubectl is not among them.
    assert len(processes_of(folder)) >= 6
    process.send_signal(signal.SIGKILL)
    wait_until(lambda: processes_of(folder) == [])
    wait_until(lambda: not folder.exists())


def test_sigterm_ends_the_foreground_command_cleanly(foreground: tuple[subprocess.Popen[str], Path]) -> None:
    process, folder = foreground
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0
    assert processes_of(folder) == []
    assert not folder.exists()


def test_stop_leaves_no_process_and_no_folder() -> None:
    nodes = ("one", "two")
    with LocalCluster(nodes=nodes) as cluster:
        folder = cluster.control_plane.folder
        for node in nodes:
            cluster.apply(pod(f"on-{node}", container(FAMILY), nodeName=node))

        def both_up() -> bool:
            return all(cluster.logs("default", f"on-{node}").count("up") == 2 for node in nodes)

        cluster.wait_for(both_up)
        # Four components and two processes of each Pod.
        assert len(processes_of(folder)) >= 8
        networks = {each["status"]["podIP"].rsplit(".", 1)[0] for each in cluster.pods("default")}
        assert len(networks) == 2, "each node has a network of its own"
    assert processes_of(folder) == []
    assert not folder.exists()


def test_failed_start_keeps_the_logs_and_names_them(tmp_path: Path) -> None:
    plane = ControlPlane(folder=tmp_path / "plane")
    (tmp_path / "plane").mkdir()
    # etcd refuses a data directory that is a file.
    (tmp_path / "plane" / "etcd").write_text("in the way")
    with pytest.raises(ControlPlaneError, match=r"etcd ended with exit code 1.*plane/logs") as caught:
        plane.start()
    assert "not a directory" in str(caught.value)
    assert (tmp_path / "plane" / "logs" / "etcd.log").exists()
    assert processes_of(tmp_path / "plane") == []
    assert not (tmp_path / "plane" / "ca.crt").exists()


def test_unknown_component_is_named(cluster: LocalCluster) -> None:
    with pytest.raises(KeyError, match=f"kubelet.*{API_SERVER}"):
        cluster.control_plane.stop_component("kubelet")
