"""The rules of the process node that are functions of values."""

from __future__ import annotations

import datetime
import os
from pathlib import Path

import pytest

from tests.cluster.manifests import container, pod
from tests.cluster.node import environment, images, status, volumes
from tests.cluster.node.environment import MissingReference, Placement
from tests.cluster.node.network import PodNetwork
from tests.cluster.node.status import ContainerStatus, Running, Terminated, Waiting

NOW = datetime.datetime(2030, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)
PLACE = Placement("127.1.2.3", "127.0.0.1", {"cpu": "8", "memory": "1Gi"})


def ended(code: int) -> Terminated:
    return status.terminated(code, message="", started=NOW, finished=NOW, container_id="process://1")


def known(state: status.State, **values: object) -> ContainerStatus:
    return ContainerStatus("c", "i", state).change(**values)


RUNNING = known(Running(NOW), started=True, ready=True)
WAITING = known(Waiting("ContainerCreating"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("$(A)/$(B)", "1/2"),
        ("$$(A)", "$(A)"),
        ("$(C)", "$(C)"),
        ("$A ${A}", "$A ${A}"),
        ("$$$(A)", "$1"),
    ],
)
def test_expansion_of_variables(text: str, expected: str) -> None:
    assert environment.expand(text, {"A": "1", "B": "2"}) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/etc/app/x", "/P/x"),
        ("--f=/etc/app", "--f=/P"),
        ("/etc/app/sub/x", "/S/x"),
        ("/etc/apple", "/etc/apple"),
        ("/etc/app.d", "/etc/app.d"),
        ("/usr/etc/app", "/usr/etc/app"),
        ("file:///etc/app/x:/etc/app/y", "file:///P/x:/P/y"),
        ("redis://host:1/etc/app", "redis://host:1/etc/app"),
        ("open('/etc/app/x')", "open('/P/x')"),
    ],
)
def test_mount_paths_in_text_lead_to_the_local_folder(text: str, expected: str) -> None:
    assert volumes.relocate(text, {"/etc/app": "/P", "/etc/app/sub": "/S"}) == expected


def test_sub_path_mounts_lead_into_the_volume(tmp_path: Path) -> None:
    mount = {"name": "v", "mountPath": "/etc/one.yaml", "subPath": "one.yaml"}
    spec = container("", volumeMounts=[mount, {"name": "host", "mountPath": "/h/"}])
    item = pod("p", spec, volumes=[{"name": "v", "emptyDir": {}}, {"name": "host", "hostPath": {"path": "/srv"}}])
    assert volumes.mounts(spec, item, tmp_path) == {"/etc/one.yaml": str(tmp_path / "v" / "one.yaml"), "/h": "/srv"}


@pytest.mark.parametrize("image", ["worker", "worker:1", "r.example:5000/a/worker@sha256:ab", "a/worker:1@sha256:ab"])
def test_repository_name_of_an_image(image: str) -> None:
    assert images.repository(image) == "worker"


def test_resources_fall_back_to_what_the_node_has() -> None:
    spec = container("", resources={"requests": {"cpu": "250m"}})
    item = pod("p", spec)
    values = {
        name: environment.resource({"resource": name}, spec, item, PLACE)
        for name in ("requests.cpu", "limits.cpu", "limits.memory", "requests.memory")
    }
    assert values == {
        "requests.cpu": "1",  # rounded up
        "limits.cpu": "8",
        "limits.memory": str(2**30),
        "requests.memory": "0",
    }
    assert environment.resource({"resource": "requests.cpu", "divisor": "1m"}, spec, item, PLACE) == "250"


def test_field_that_kubernetes_does_not_offer_is_named() -> None:
    item = pod("p", container(""))
    item["metadata"] |= {"namespace": "n", "uid": "u"}
    with pytest.raises(MissingReference, match=r"spec\.containers"):
        environment.field("spec.containers", item, PLACE)


def test_references_are_found_in_environment_and_volumes() -> None:
    env = [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "one", "key": "k"}}}]
    source = [{"configMapRef": {"name": "two"}}]
    mounted = [
        {"name": "v", "secret": {"secretName": "three"}},
        {"name": "w", "projected": {"sources": [{"configMap": {"name": "four"}}, {"secret": {"name": "five"}}]}},
    ]
    item = pod("p", container("", env=env), initContainers=[container("", envFrom=source)], volumes=mounted)
    expected = {("Secret", "one"), ("ConfigMap", "two"), ("Secret", "three"), ("ConfigMap", "four"), ("Secret", "five")}
    assert environment.references(item) == expected


def test_volume_is_replaced_as_a_whole(tmp_path: Path) -> None:
    folder = tmp_path / "v"
    assert volumes.write(folder, {"a": (b"1", 0o644), "d/b": (b"1", 0o600)})
    first = os.readlink(folder / "..data")
    assert not volumes.write(folder, {"a": (b"1", 0o644), "d/b": (b"1", 0o600)})
    assert os.readlink(folder / "..data") == first
    # Files opened before stay readable, paths lead to the new set.
    with (folder / "a").open() as old:
        assert volumes.write(folder, {"a": (b"2", 0o644), "c": (b"2", 0o644)})
        assert old.read() == "1"
    assert (folder / "a").read_text() == "2"
    assert sorted(entry.name for entry in folder.iterdir() if not entry.name.startswith("..")) == ["a", "c"]
    assert not (folder / first).exists()


@pytest.mark.parametrize(
    ("policy", "init", "main", "ending", "expected"),
    [
        ("Always", [], [WAITING], False, "Pending"),
        ("Always", [known(ended(1))], [WAITING], False, "Pending"),
        ("Never", [known(ended(1))], [WAITING], False, "Failed"),
        ("Always", [known(ended(0))], [RUNNING], False, "Running"),
        ("Always", [], [known(ended(1))], False, "Running"),
        ("OnFailure", [], [known(ended(1))], False, "Running"),
        ("OnFailure", [], [known(ended(0))], False, "Succeeded"),
        ("Never", [], [known(ended(0)), known(ended(2))], False, "Failed"),
        ("Never", [], [known(ended(0)), RUNNING], False, "Running"),
        ("Always", [], [known(Waiting("CrashLoopBackOff"), last=ended(1))], False, "Running"),
        ("Always", [], [known(ended(-15))], True, "Failed"),
        ("Always", [], [known(ended(0))], True, "Succeeded"),
        ("Always", [], [WAITING], True, "Failed"),
    ],
)
def test_phase(
    policy: str, init: list[ContainerStatus], main: list[ContainerStatus], ending: bool, expected: str
) -> None:
    assert status.phase(policy, init, main, ending=ending) == expected


@pytest.mark.parametrize(
    ("policy", "code", "init", "expected"),
    [
        ("Always", 0, False, True),
        ("Always", 0, True, False),
        ("Always", 1, True, True),
        ("OnFailure", 0, False, False),
        ("OnFailure", 1, False, True),
        ("Never", 1, False, False),
    ],
)
def test_restart_policy(policy: str, code: int, init: bool, expected: bool) -> None:
    assert status.should_restart(policy, code, init=init) is expected


def test_back_off_starts_with_none_and_ends_at_the_cap() -> None:
    assert [status.backoff(number, 0.5, 4) for number in range(7)] == [0, 0.5, 1, 2, 4, 4, 4]
    assert status.backoff(10_000, 0.5, 4) == 4


def test_condition_keeps_its_transition_time_while_the_status_stays() -> None:
    item = pod("p", container(""))
    earlier = status.conditions(item, [], [RUNNING], [], pod_phase="Running", now=NOW)
    later = NOW + datetime.timedelta(hours=1)
    after = status.conditions(item, [], [RUNNING.change(ready=False)], earlier, pod_phase="Running", now=later)
    times = {each["type"]: (each["status"], each["lastTransitionTime"]) for each in after}
    assert times["Initialized"] == ("True", "2030-01-02T03:04:05Z")
    assert times["Ready"] == ("False", "2030-01-02T04:04:05Z")


def test_readiness_gate_holds_back_ready_alone() -> None:
    item = pod("p", container(""), readinessGates=[{"conditionType": "x.example/open"}])
    closed = status.conditions(item, [], [RUNNING], [], pod_phase="Running", now=NOW)
    gate = {"type": "x.example/open", "status": "True"}
    opened = status.conditions(item, [], [RUNNING], [gate], pod_phase="Running", now=NOW)
    assert {each["type"]: each["status"] for each in closed}["ContainersReady"] == "True"
    assert {each["type"]: each["status"] for each in closed}["Ready"] == "False"
    assert {each["type"]: each["status"] for each in opened}["Ready"] == "True"


def test_pod_networks_do_not_overlap_and_addresses_come_back_last(tmp_path: Path) -> None:
    one, two = PodNetwork(tmp_path), PodNetwork(tmp_path)
    try:
        assert one.cidr != two.cidr
        first = one.allocate()
        one.release(first)
        rest = [one.allocate() for _ in range(254)]
        assert len(set(rest)) == 254
        assert rest[-1] == first
        with pytest.raises(OSError, match="no free Pod address"):
            one.allocate()
    finally:
        one.close()
        two.close()
