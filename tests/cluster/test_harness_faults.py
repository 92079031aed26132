"""Fault switches, service accounts, and a node that outlives its API server."""

from __future__ import annotations

import asyncio
import datetime
import json
import time

import pytest

from tests.cluster.cluster import LocalCluster
from tests.cluster.control_plane import API_SERVER
from tests.cluster.manifests import SLEEP, container, deployment, pod
from tests.cluster.node import probes
from tests.cluster.node.agent import system_clock
from tests.cluster.node.faults import Delay, Gate
from tests.cluster.rest import Object
from tests.cluster.test_harness_lifecycle import container_of, wait_log, wait_phase, wait_ready

COUNT = """
import time
number = 0
while True:
    number += 1
    print(number, flush=True)
    time.sleep(0.02)
"""


def test_frozen_process_stands_still_until_resumed(cluster: LocalCluster, namespace: str) -> None:
    cluster.apply(pod("counter", container(COUNT)), namespace=namespace)
    wait_log(cluster, namespace, "counter", "3\n")
    pid = cluster.node.pid(namespace, "counter")
    cluster.node.freeze(namespace, "counter")
    cluster.wait_for(lambda: process_state(pid) == "T", what="stopped")
    before = cluster.node.logs(namespace, "counter")
    time.sleep(0.2)  # ten turns of its loop, had it gone on
    assert cluster.node.logs(namespace, "counter") == before
    assert container_of(cluster, namespace, "counter")["ready"] is True
    cluster.node.resume(namespace, "counter")
    cluster.wait_for(lambda: len(cluster.node.logs(namespace, "counter")) > len(before))


def test_frozen_process_can_be_deleted(cluster: LocalCluster, namespace: str) -> None:
    cluster.apply(pod("ice", container(SLEEP), terminationGracePeriodSeconds=1), namespace=namespace)
    wait_ready(cluster, namespace, "ice")
    cluster.node.freeze(namespace, "ice")
    cluster.delete("v1", "Pod", "ice", namespace)
    cluster.wait_for(lambda: cluster.get("v1", "Pod", "ice", namespace) is None)


def test_killed_pod_of_a_deployment_is_restarted_in_place(cluster: LocalCluster, namespace: str) -> None:
    cluster.apply(deployment("web", container(SLEEP)), namespace=namespace)
    cluster.wait_for(lambda: cluster.pods(namespace)[0]["status"]["containerStatuses"][0]["ready"])
    name = cluster.pods(namespace)[0]["metadata"]["name"]
    before = cluster.node.pid(namespace, name)
    cluster.node.kill(namespace, name)
    cluster.wait_for(lambda: container_of(cluster, namespace, name)["restartCount"] == 1)
    wait_ready(cluster, namespace, name)
    assert cluster.node.pid(namespace, name) not in (None, before)
    assert container_of(cluster, namespace, name)["lastState"]["terminated"]["exitCode"] == 137


def test_start_of_chosen_pods_can_be_held(cluster: LocalCluster, namespace: str) -> None:
    with cluster.node.delay_starts(namespace, prefix="late"):
        for name in ("late", "early"):
            cluster.apply(pod(name, container("print('ran')"), restartPolicy="Never"), namespace=namespace)
        wait_phase(cluster, namespace, "early", "Succeeded")
        waiting = cluster.wait_for(lambda: container_of(cluster, namespace, "late")["state"]["waiting"])
        assert waiting["reason"] == "ContainerCreating"
        assert cluster.node.logs(namespace, "late") == ""
    wait_phase(cluster, namespace, "late", "Succeeded")


def test_fault_switches_name_a_pod_that_does_not_run(cluster: LocalCluster, namespace: str) -> None:
    with pytest.raises(LookupError, match=f"{namespace}/nobody"):
        cluster.node.kill(namespace, "nobody")
    assert cluster.node.pid(namespace, "nobody") is None


ASK = """
import json, sys
import kubernetes
kubernetes.config.load_kube_config()
client = kubernetes.client.CoreV1Api()
answers = {}
for what, call in (("pods", client.list_namespaced_pod), ("secrets", client.list_namespaced_secret)):
    try:
        call(sys.argv[1])
        answers[what] = 200
    except kubernetes.client.ApiException as error:
        answers[what] = error.status
print(json.dumps(answers))
"""


def test_pod_has_its_service_account_and_no_more_than_its_rights(cluster: LocalCluster, namespace: str) -> None:
    rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}]
    group = "rbac.authorization.k8s.io"
    objects: list[Object] = [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "reader"}},
        {"apiVersion": f"{group}/v1", "kind": "Role", "metadata": {"name": "reader"}, "rules": rules},
        {
            "apiVersion": f"{group}/v1",
            "kind": "RoleBinding",
            "metadata": {"name": "reader"},
            "roleRef": {"apiGroup": group, "kind": "Role", "name": "reader"},
            "subjects": [{"kind": "ServiceAccount", "name": "reader", "namespace": namespace}],
        },
    ]
    cluster.apply(objects, namespace=namespace)
    for name, account in (("allowed", "reader"), ("denied", "default")):
        asking = pod(name, container(ASK, args=(namespace,)), serviceAccountName=account, restartPolicy="Never")
        cluster.apply(asking, namespace=namespace)
    for name, pods in (("allowed", 200), ("denied", 403)):
        wait_phase(cluster, namespace, name, "Succeeded")
        assert json.loads(cluster.node.logs(namespace, name)) == {"pods": pods, "secrets": 403}


def test_pod_without_mounted_token_gets_no_kubeconfig(cluster: LocalCluster, namespace: str) -> None:
    script = "import os; print(os.environ.get('KUBECONFIG'))"
    bare = pod("bare", container(script), automountServiceAccountToken=False, restartPolicy="Never")
    cluster.apply(bare, namespace=namespace)
    wait_phase(cluster, namespace, "bare", "Succeeded")
    assert cluster.node.logs(namespace, "bare") == "None\n"


def test_renewed_token_reaches_the_running_pod(cluster: LocalCluster, namespace: str) -> None:
    hours = [0]
    node = cluster.add_node("clocked", clock=lambda: system_clock() + datetime.timedelta(hours=hours[0]))
    script = """
        import os, time, yaml
        seen = []
        while len(seen) < 2:
            user = yaml.safe_load(open(os.environ["KUBECONFIG"]))["users"][0]["user"]
            # Inline and file are replaced one after the other: take them when they agree.
            if user["token"] == open(user["tokenFile"]).read() and user["token"] not in seen:
                seen.append(user["token"])
                print(len(seen), flush=True)
            time.sleep(0.02)
    """
    try:
        cluster.apply(pod("holder", container(script), nodeName="clocked", restartPolicy="Never"), namespace=namespace)
        cluster.wait_for(lambda: "1\n" in cluster.logs(namespace, "holder"))
        # Due now by the node's clock; the change of the Pod makes it look.
        hours[0] = 1
        cluster.kubectl("annotate", "pod/holder", "look=now", "--namespace", namespace)
        wait_phase(cluster, namespace, "holder", "Succeeded")
        assert node.logs(namespace, "holder") == "1\n2\n"
    finally:
        cluster.remove_node("clocked")


def test_removed_node_takes_its_processes_along(cluster: LocalCluster, namespace: str) -> None:
    cluster.add_node("brief")
    cluster.apply(pod("guest", container(SLEEP), nodeName="brief"), namespace=namespace)
    wait_ready(cluster, namespace, "guest")
    pid = cluster.nodes["brief"].pid(namespace, "guest")
    cluster.remove_node("brief")
    assert process_state(pid) is None
    assert cluster.get("v1", "Node", "brief") is None


async def test_delays_concern_the_chosen_pods_and_end() -> None:
    gate = Gate()
    timed, held = Delay("n", "slow", 0.05), Delay("n", "held", None)
    gate.add(timed)
    gate.add(held)
    loop = asyncio.get_running_loop()
    begun = loop.time()
    await gate.admit("n", "other")
    await gate.admit("elsewhere", "held-1")
    await gate.admit("n", "slow-1")
    assert loop.time() - begun >= 0.05
    waiting = asyncio.create_task(gate.admit("n", "held-1"))
    await asyncio.sleep(0)
    assert not waiting.done()
    gate.remove(held)
    await asyncio.wait_for(waiting, 60)
    await asyncio.wait_for(gate.admit("n", "held-2"), 60)


async def test_a_probe_that_is_answered_as_it_is_cancelled_does_not_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that ends closes its probe's connection; its Pod waits for the end of its probes."""
    asked, answer = asyncio.Event(), asyncio.get_running_loop().create_future()

    async def get(handler: Object, target: probes.Target) -> str | None:
        asked.set()
        await answer
        return None

    async def ignored(good: bool, why: str) -> None:
        pass

    async def execute(command: list[str], timeout: float) -> int | None:
        return None

    monkeypatch.setattr(probes, "_get", get)
    target = probes.Target("127.0.0.1", {}, execute)
    watch = asyncio.create_task(probes.watch({"httpGet": {"port": 1}}, target, ignored, healthy=True))
    await asked.wait()
    answer.set_result(None)
    watch.cancel()
    done, _ = await asyncio.wait({watch}, timeout=5)
    assert done
    assert watch.cancelled()


def test_pods_outlive_their_api_server_and_are_reported_afterwards(cluster: LocalCluster, namespace: str) -> None:
    cluster.apply([pod("steady", container(COUNT)), pod("crashing", container(SLEEP))], namespace=namespace)
    for name in ("steady", "crashing"):
        wait_ready(cluster, namespace, name)
    pid = cluster.node.pid(namespace, "steady")
    crashed = cluster.node.pid(namespace, "crashing")

    cluster.control_plane.stop_component(API_SERVER, grace=0)
    before = cluster.node.logs(namespace, "steady")
    cluster.wait_for(lambda: len(cluster.node.logs(namespace, "steady")) > len(before), what="it goes on")
    # A restart needs no API server either.
    cluster.node.kill(namespace, "crashing")
    cluster.wait_for(lambda: cluster.node.pid(namespace, "crashing") not in (None, crashed))
    cluster.control_plane.start_component(API_SERVER)

    cluster.wait_for(lambda: container_of(cluster, namespace, "crashing")["restartCount"] == 1)
    assert cluster.node.pid(namespace, "steady") == pid
    # And it is listened to again.
    cluster.apply(pod("fresh", container("print('ran')"), restartPolicy="Never"), namespace=namespace)
    wait_phase(cluster, namespace, "fresh", "Succeeded")
    cluster.delete("v1", "Pod", "steady", namespace)
    cluster.wait_for(lambda: cluster.get("v1", "Pod", "steady", namespace) is None)


def process_state(pid: int | None) -> str | None:
    """State letter of a process in /proc, None if it does not exist."""
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return None
