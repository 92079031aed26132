"""Three real processes, a real Lease, a real Redis: frozen, killed, asked to end, and cut off from the API server."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis

from tests.cluster.cluster import LocalCluster
from tests.cluster.control_plane import API_SERVER, ControlPlane
from tests.cluster.guard import Guard
from tests.election.host_sleep import slept
from tests.services.mongo import FerretServer
from tests.services.redis import RedisServer

ROOT = Path(__file__).resolve().parents[2]
DEADLINE = 120.0


class Process:
    """One candidate, and what it has said."""

    def __init__(self, guard: Guard, name: str, *options: str, **env: str) -> None:
        self.name, self._guard = name, guard
        self.lines: list[str] = []
        self._process = subprocess.Popen(
            [sys.executable, "-W", "error", "-m", "tests.election.process", "--name", name, *options],
            cwd=ROOT,
            env={**os.environ, **env},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        guard.watch(self._process.pid)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.lines.append(line.rstrip())

    def signal(self, number: int) -> None:
        os.killpg(self._process.pid, number)

    def said(self, word: str) -> list[str]:
        return [line for line in self.lines if line.startswith(word)]

    def wait(self, seconds: float = 60) -> int:
        return self._process.wait(seconds)

    def close(self) -> None:
        if self._process.poll() is None:
            self.signal(signal.SIGKILL)
        self._process.wait()
        self._guard.release(self._process.pid)
        self._reader.join()
        assert self._process.stdout is not None
        self._process.stdout.close()


class Group:
    """Three candidates and the list that leaders write to."""

    def __init__(self, guard: Guard, server: RedisServer, tag: str, *options: str, **env: str) -> None:
        # One of them lives in another time zone.
        zones = ("UTC", "Asia/Tokyo", "America/New_York")
        common = ("--redis", server.url, "--tag", tag, *options)
        self.all = [Process(guard, f"p{n}", *common, TZ=zone, **env) for n, zone in enumerate(zones)]
        self._redis = redis.Redis.from_url(server.url)
        self._key = f"{{{tag}}}:work"

    def writer(self, *, but: Process | None = None) -> Process:
        """The process that makes the next write, once ``but`` and its epochs are over.

        Whoever says that it leads may be fenced before its first write: two may win one lock of a store whose writes
        are not atomic, and a lower lock while the higher one is slow to answer. What is written tells who leads.
        """
        count = len(self.writes())
        over = max((epoch for epoch, name in self.writes() if but is not None and name == but.name), default=0)
        found: list[str] = []

        def written() -> bool:
            found[:] = [
                name for epoch, name in self.writes()[count:] if epoch > over and (but is None or name != but.name)
            ]
            return bool(found)

        self.until(written)
        return next(each for each in self.all if each.name == found[-1])

    def writes(self) -> list[tuple[int, str]]:
        rows = [row.decode().split() for row in self._redis.lrange(self._key, 0, -1)]  # type: ignore[union-attr]
        return [(int(epoch), name) for epoch, name in rows]

    def until(self, condition: Callable[[], bool]) -> float:
        begun = time.monotonic()
        while not condition():
            if time.monotonic() - begun > DEADLINE:
                raise AssertionError({each.name: each.lines for each in self.all})
            time.sleep(0.02)
        return time.monotonic() - begun

    def check(self) -> None:
        """S1: epochs never go back, and each has one writer."""
        writes = self.writes()
        epochs = [epoch for epoch, _ in writes]
        assert epochs == sorted(epochs)
        writers: dict[int, set[str]] = {}
        for epoch, name in writes:
            writers.setdefault(epoch, set()).add(name)
        assert all(len(names) == 1 for names in writers.values()), writers

    def close(self) -> None:
        for each in self.all:
            each.close()
        self._redis.close()


@pytest.fixture
def server(process_guard: Guard) -> Iterator[RedisServer]:
    with RedisServer(guard=process_guard) as running:
        yield running


@pytest.fixture
def group(
    process_guard: Guard, server: RedisServer, prefix: str, cluster: LocalCluster, namespace: str
) -> Iterator[Group]:
    options = ("--lease", "leader", "--namespace", namespace)
    places = {"KUBECONFIG": str(cluster.kubeconfig), "TMPDIR": str(cluster.kubeconfig.parent)}
    made = Group(process_guard, server, prefix, *options, **places)
    yield made
    made.close()


def test_L9_L16_LE35_a_frozen_leader_is_replaced_and_its_late_writes_are_refused(group: Group) -> None:
    first = group.writer()
    first.signal(signal.SIGSTOP)
    group.writer(but=first)
    stops = len(first.said("stopped"))
    first.signal(signal.SIGCONT)
    group.until(lambda: len(first.said("stopped")) > stops)
    count = len(group.writes())
    group.writer(but=first)
    assert first.name not in {name for _, name in group.writes()[count:]}
    group.check()


def test_LE35_a_leader_whose_machine_has_slept_knows_it_at_once_and_campaigns_again(
    process_guard: Guard, server: RedisServer, prefix: str
) -> None:
    with slept(600, process_guard) as namespaces:
        group = Group(process_guard, server, prefix, "--asleep", str(namespaces))
        try:
            sleeper = group.writer()
            before = group.writes()[-1][0]
            sleeper.signal(signal.SIGUSR1)
            group.until(lambda: bool(sleeper.said("slept")))
            ((_, led, leads, seconds),) = (line.split() for line in sleeper.said("slept"))
            assert (led, leads) == ("True", "False")
            assert int(seconds) < 60  # of the ten minutes, the clock that stands still in a sleep has seen none
            group.until(lambda: sleeper.said("stopped") == ["stopped expired"])
            group.until(lambda: group.writes()[-1][0] > before)
            for other in group.all:
                if other is not sleeper:
                    other.signal(signal.SIGKILL)
            begun = len(group.writes())
            group.until(lambda: sleeper.name in {name for _, name in group.writes()[begun:]})
            group.check()
        finally:
            group.close()


def test_L6_LE9_a_killed_leader_is_followed(group: Group) -> None:
    first = group.writer()
    first.signal(signal.SIGKILL)
    group.writer(but=first)
    group.check()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_LE16_LE10_a_leader_that_is_asked_to_end_hands_over(group: Group, number: int) -> None:
    first = group.writer()
    first.signal(number)
    second = group.writer(but=first)
    assert first.wait() == 0
    assert first.said("stopped")[-1] == "stopped terminated"
    assert first.said("ended") == ["ended True"]
    # One that does not lead ends too, and each end of a term was told once.
    third = next(each for each in group.all if each not in (first, second))
    group.until(lambda: bool(third.said("campaigning")))  # it may have been slower to start than two terms took
    third.signal(signal.SIGTERM)
    assert third.wait() == 0
    assert len(third.said("stopped")) == len(third.said("started"))
    group.check()


def test_LE30_the_work_goes_on_while_the_API_server_is_gone(
    process_guard: Guard, server: RedisServer, prefix: str, ferret: FerretServer
) -> None:
    with ControlPlane() as plane:
        options = ("--lease", "leader", "--namespace", "default", "--mongo", ferret.url)
        places = {"KUBECONFIG": str(plane.kubeconfig), "TMPDIR": str(plane.folder)}
        group = Group(process_guard, server, prefix, *options, **places)
        try:
            leader = group.writer()
            before = group.writes()[-1][0]
            plane.stop_component(API_SERVER, grace=0)
            group.until(lambda: group.writes()[-1][0] > before)
            ferret.kill()
            below = group.writes()[-1][0]
            group.until(lambda: group.writes()[-1][0] > below)
            ferret.start()
            plane.start_component(API_SERVER)
            group.until(lambda: _holder(plane).startswith(_identity(leader)))
            assert leader.said("stopped") == []
            leader.signal(signal.SIGKILL)
            group.writer(but=leader)
            group.check()
        finally:
            group.close()


def _identity(process: Process) -> str:
    """What the process called itself when it began to lead."""
    began = next(n for n, line in enumerate(process.lines) if line.startswith("started"))
    return next(line.split()[1] for line in process.lines[max(0, began - 1) :] if line.startswith("leader"))


def _holder(plane: ControlPlane) -> str:
    found = plane.rest.find("/apis/coordination.k8s.io/v1/namespaces/default/leases/leader")
    spec = found["spec"] if found is not None else {}
    fresh = int(spec.get("leaseTransitions", 0)) > 1  # taken again since the outage
    return str(spec.get("holderIdentity", "")) if fresh else ""
