"""Pods as users write them: environment, volumes, init containers, images, logs, Deployments."""

from __future__ import annotations

import base64
import datetime
import json

import pytest

from tests.cluster.cluster import CommandError, LocalCluster
from tests.cluster.manifests import SLEEP, container, deployment, pod
from tests.cluster.rest import Object


def status(cluster: LocalCluster, namespace: str, name: str) -> Object:
    found = cluster.get("v1", "Pod", name, namespace)
    assert found is not None, f"no Pod {name}"
    return dict(found["status"])


def wait_phase(cluster: LocalCluster, namespace: str, name: str, phase: str) -> Object:
    cluster.wait_for(lambda: status(cluster, namespace, name).get("phase") == phase, what=f"{name} is {phase}")
    return status(cluster, namespace, name)


def printed(cluster: LocalCluster, namespace: str, name: str) -> Object:
    """The JSON object that the Pod wrote as its only output."""
    wait_phase(cluster, namespace, name, "Succeeded")
    return dict(json.loads(cluster.node.logs(namespace, name)))


PRINT_ENVIRONMENT = "import json, os, sys; print(json.dumps(dict(os.environ) | {'argv': sys.argv[1:]}))"


def test_deployment_runs_serving_pods_and_becomes_available(cluster: LocalCluster, namespace: str) -> None:
    serve = """
        import http.server, os
        http.server.test(http.server.SimpleHTTPRequestHandler, port=8080, bind=os.environ["IP"])
    """
    web = container(
        serve,
        env=[{"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}],
        ports=[{"name": "http", "containerPort": 8080}],
        readinessProbe={"httpGet": {"port": "http", "path": "/"}, "periodSeconds": 1},
    )
    cluster.apply(deployment("web", web, replicas=3), namespace=namespace)

    def available() -> bool:
        found = cluster.get("apps/v1", "Deployment", "web", namespace)
        return found is not None and found["status"].get("availableReplicas") == 3

    cluster.wait_for(available)
    pods = cluster.pods(namespace)
    # All three listen on the same port, each on its own address, and answer there.
    assert len({each["status"]["podIP"] for each in pods}) == 3
    assert all(each["status"]["phase"] == "Running" for each in pods)
    assert {condition["type"]: condition["status"] for condition in pods[0]["status"]["conditions"]} == {
        "PodScheduled": "True",
        "PodReadyToStartContainers": "True",
        "Initialized": "True",
        "ContainersReady": "True",
        "Ready": "True",
    }

    cluster.kubectl("scale", "deployment/web", "--replicas=1", "--namespace", namespace)
    cluster.wait_for(lambda: len(cluster.pods(namespace)) == 1, what="two Pods are gone")


def test_node_is_registered_ready_and_keeps_its_lease(cluster: LocalCluster) -> None:
    node = cluster.get("v1", "Node", "node-1")
    assert node is not None
    assert not node["spec"].get("taints")
    assert {each["type"]: each["status"] for each in node["status"]["conditions"]}["Ready"] == "True"

    def lease() -> Object | None:
        return cluster.get("coordination.k8s.io/v1", "Lease", "node-1", "kube-node-lease")

    held = cluster.wait_for(lease)
    renewed = datetime.datetime.fromisoformat(held["spec"]["renewTime"])
    age = datetime.datetime.now(datetime.UTC) - renewed
    assert held["spec"]["holderIdentity"] == "node-1"
    assert age.total_seconds() < held["spec"]["leaseDurationSeconds"]


def test_environment_from_every_source(cluster: LocalCluster, namespace: str) -> None:
    objects: list[Object] = [
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "login"},
            "stringData": {"user": "u", "pass": "p$1"},
        },
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}, "data": {"LEVEL": "debug"}},
    ]
    env: list[Object] = [
        {"name": "PLAIN", "value": "x"},
        {"name": "COMPOSED", "value": "$(PLAIN)-$(CM_LEVEL)-$(UNKNOWN)-$$(PLAIN)"},
        {"name": "SECRET", "valueFrom": {"secretKeyRef": {"name": "login", "key": "pass"}}},
        {"name": "MAYBE", "valueFrom": {"secretKeyRef": {"name": "absent", "key": "k", "optional": True}}},
        {"name": "MAP", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "LEVEL"}}},
        {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "LABEL", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['app']"}}},
        {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
        {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        {"name": "CPU", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
        {"name": "MIB", "valueFrom": {"resourceFieldRef": {"resource": "limits.memory", "divisor": "1Mi"}}},
    ]
    runner = container(
        PRINT_ENVIRONMENT,
        args=("--user=$(IN_user)", "$(PLAIN)"),
        env=env,
        envFrom=[
            {"prefix": "IN_", "secretRef": {"name": "login"}},
            {"prefix": "CM_", "configMapRef": {"name": "settings"}},
        ],
        resources={"limits": {"cpu": "1500m", "memory": "64Mi"}},
    )
    cluster.apply([*objects, pod("env", runner, restartPolicy="Never")], namespace=namespace)
    seen = printed(cluster, namespace, "env")

    assert seen["IN_user"] == "u"
    assert seen["IN_pass"] == "p$1"
    assert seen["COMPOSED"] == "x-debug-$(UNKNOWN)-$(PLAIN)"
    assert seen["SECRET"] == "p$1"
    assert "MAYBE" not in seen
    assert seen["MAP"] == "debug"
    assert (seen["POD"], seen["LABEL"], seen["NODE"]) == ("env", "env", "node-1")
    assert seen["IP"] == status(cluster, namespace, "env")["podIP"]
    assert seen["IP"].startswith("127.1.")
    assert (seen["CPU"], seen["MIB"]) == ("2", "64")
    assert seen["argv"] == ["--user=u", "x"]
    # Nothing of our own environment is inherited but PATH.
    assert "PYTEST_CURRENT_TEST" not in seen


def test_missing_secret_is_reported_and_waited_for(cluster: LocalCluster, namespace: str) -> None:
    env = [{"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "late", "key": "k"}}}]
    cluster.apply(pod("needy", container(PRINT_ENVIRONMENT, env=env), restartPolicy="Never"), namespace=namespace)

    def waiting() -> Object:
        return dict(status(cluster, namespace, "needy")["containerStatuses"][0]["state"]["waiting"])

    cluster.wait_for(lambda: waiting()["reason"] == "CreateContainerConfigError")
    assert 'secret "late" not found' in waiting()["message"]

    late = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "late"}, "stringData": {"k": "v"}}
    cluster.apply(late, namespace=namespace)
    assert printed(cluster, namespace, "needy")["KEY"] == "v"


def test_volumes_hold_their_sources_and_mount_paths_lead_there(cluster: LocalCluster, namespace: str) -> None:
    objects: list[Object] = [
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "tls"}, "stringData": {"tls.key": "K"}},
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "files"},
            "data": {"a.yaml": "A"},
            "binaryData": {"b.bin": base64.b64encode(b"\x00\xff").decode()},
        },
    ]
    script = """
        import json, os, sys
        key, folder, scratch, combined = sys.argv[1:]
        open(scratch + "/new", "w").write("written")
        print(json.dumps({
            "key": open(key).read(),
            "mode": oct(os.stat(key).st_mode & 0o777),
            "files": sorted(name for name in os.listdir(folder) if not name.startswith("..")),
            "binary": open(folder + "/b.bin", "rb").read().hex(),
            "scratch": os.listdir(scratch),
            "renamed": open(combined + "/conf/app.yaml").read(),
            "labels": open(combined + "/labels").read(),
            "env": open(os.environ["CONFIG"]).read(),
        }))
    """
    volumes: list[Object] = [
        {"name": "tls", "secret": {"secretName": "tls", "defaultMode": 0o400}},
        {"name": "files", "configMap": {"name": "files"}},
        {"name": "scratch", "emptyDir": {}},
        {
            "name": "combined",
            "projected": {
                "sources": [
                    {"configMap": {"name": "files", "items": [{"key": "a.yaml", "path": "conf/app.yaml"}]}},
                    {"downwardAPI": {"items": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]}},
                ]
            },
        },
    ]
    mounts = [{"name": name, "mountPath": f"/mnt/{name}"} for name in ("tls", "files", "scratch", "combined")]
    runner = container(
        script,
        args=("/mnt/tls/tls.key", "/mnt/files", "/mnt/scratch", "/mnt/combined"),
        env=[{"name": "CONFIG", "value": "/mnt/files/a.yaml"}],
        volumeMounts=mounts,
    )
    cluster.apply([*objects, pod("files", runner, restartPolicy="Never", volumes=volumes)], namespace=namespace)

    assert printed(cluster, namespace, "files") == {
        "key": "K",
        "mode": "0o400",
        "files": ["a.yaml", "b.bin"],
        "binary": "00ff",
        "scratch": ["new"],
        "renamed": "A",
        "labels": 'app="files"',
        "env": "A",
    }


def test_changed_secret_reaches_the_mounted_files_as_one_set(cluster: LocalCluster, namespace: str) -> None:
    def secret(value: str) -> Object:
        data = {"one": value, "two": value}
        return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "pair"}, "stringData": data}

    # Reads both files through one opened directory: a mixture of old and new would show.
    script = """
        import os, sys, time
        seen = ""
        while True:
            real = os.path.realpath(sys.argv[1] + "/..data")
            try:
                pair = open(real + "/one").read() + open(real + "/two").read()
            except FileNotFoundError:
                continue
            if pair != seen:
                seen = pair
                print(pair)
            time.sleep(0.001)
    """
    volumes = [{"name": "pair", "secret": {"secretName": "pair"}}]
    reader = container(script, args=("/etc/pair",), volumeMounts=[{"name": "pair", "mountPath": "/etc/pair"}])
    cluster.apply([secret("a"), pod("reader", reader, volumes=volumes)], namespace=namespace)
    cluster.wait_for(lambda: cluster.node.logs(namespace, "reader") == "aa\n")
    cluster.apply(secret("b"), namespace=namespace)
    cluster.wait_for(lambda: cluster.node.logs(namespace, "reader") == "aa\nbb\n")


def test_init_containers_run_one_after_the_other_first(cluster: LocalCluster, namespace: str) -> None:
    mounts = [{"name": "shared", "mountPath": "/shared"}]
    append = "import sys; open('/shared/order', 'a').write(sys.argv[1])"
    init = [container(append, name=name, args=(name,), volumeMounts=mounts) for name in ("first", "second")]
    main = container("print(open('/shared/order').read())", volumeMounts=mounts)
    volumes = [{"name": "shared", "emptyDir": {}}]
    cluster.apply(
        pod("ordered", main, initContainers=init, volumes=volumes, restartPolicy="Never"), namespace=namespace
    )
    done = wait_phase(cluster, namespace, "ordered", "Succeeded")
    assert cluster.node.logs(namespace, "ordered", "main") == "firstsecond\n"
    assert [each["state"]["terminated"]["exitCode"] for each in done["initContainerStatuses"]] == [0, 0]


def test_failing_init_container_keeps_the_pod_from_starting(cluster: LocalCluster, namespace: str) -> None:
    broken = container("raise SystemExit(4)", name="broken")
    cluster.apply(pod("stuck", container(SLEEP), initContainers=[broken], restartPolicy="Never"), namespace=namespace)
    failed = wait_phase(cluster, namespace, "stuck", "Failed")
    assert failed["initContainerStatuses"][0]["state"]["terminated"]["exitCode"] == 4
    assert "waiting" in failed["containerStatuses"][0]["state"]


def test_failing_init_container_is_tried_again(cluster: LocalCluster, namespace: str) -> None:
    script = "import os; known = os.path.exists('/s/once'); open('/s/once', 'w'); raise SystemExit(0 if known else 1)"
    mounts = [{"name": "s", "mountPath": "/s"}]
    init = container(script, name="second-time-lucky", volumeMounts=mounts)
    volumes = [{"name": "s", "emptyDir": {}}]
    main = container("print('ran')")
    cluster.apply(
        pod("patient", main, initContainers=[init], volumes=volumes, restartPolicy="OnFailure"), namespace=namespace
    )
    done = wait_phase(cluster, namespace, "patient", "Succeeded")
    assert done["initContainerStatuses"][0]["restartCount"] == 1
    assert cluster.node.logs(namespace, "patient", "main") == "ran\n"


def test_unknown_image_without_command_is_an_image_error(cluster: LocalCluster, namespace: str) -> None:
    cluster.apply(pod("typo", {"name": "main", "image": "registry.example/no-such:1"}), namespace=namespace)

    def waiting() -> Object:
        return dict(status(cluster, namespace, "typo")["containerStatuses"][0]["state"]["waiting"])

    cluster.wait_for(lambda: waiting()["reason"] == "ImagePullBackOff")
    assert "registry.example/no-such:1" in waiting()["message"]
    assert status(cluster, namespace, "typo")["phase"] == "Pending"


def test_known_image_runs_its_entrypoint(cluster: LocalCluster, namespace: str) -> None:
    runner = {"name": "main", "image": "registry.example/x/headrace-worker:9", "args": ["--help"]}
    cluster.apply(pod("worker", runner, restartPolicy="Never"), namespace=namespace)
    cluster.wait_for(lambda: status(cluster, namespace, "worker").get("phase") in ("Succeeded", "Failed"))
    state = status(cluster, namespace, "worker")["containerStatuses"][0]["state"]["terminated"]
    assert state["exitCode"] == 0, cluster.node.logs(namespace, "worker")
    assert "headrace" in cluster.node.logs(namespace, "worker")


def test_what_the_node_cannot_do_is_refused_and_not_pretended(cluster: LocalCluster, namespace: str) -> None:
    volumes = [{"name": "disk", "persistentVolumeClaim": {"claimName": "none"}}]
    bound = pod("disk", container(SLEEP), volumes=volumes, nodeName="node-1")  # the scheduler would wait for the claim
    cluster.apply(bound, namespace=namespace)
    failed = wait_phase(cluster, namespace, "disk", "Failed")
    assert "persistentVolumeClaim" in failed["message"]


def test_kubectl_logs_of_this_and_the_previous_run(cluster: LocalCluster, namespace: str) -> None:
    count = """
        import os, sys
        path = sys.argv[1] + "/runs"
        run = int(open(path).read()) + 1 if os.path.exists(path) else 1
        open(path, "w").write(str(run))
        print("run", run)
        sys.exit(1 if run == 1 else 0)
    """
    runner = container(count, args=("/keep",), volumeMounts=[{"name": "keep", "mountPath": "/keep"}])
    volumes = [{"name": "keep", "emptyDir": {}}]
    cluster.apply(pod("twice", runner, volumes=volumes, restartPolicy="OnFailure"), namespace=namespace)
    wait_phase(cluster, namespace, "twice", "Succeeded")
    assert cluster.kubectl("logs", "twice", "--namespace", namespace) == "run 2\n"
    assert cluster.kubectl("logs", "twice", "--previous", "--namespace", namespace) == "run 1\n"
    assert cluster.kubectl("logs", "twice", "--follow", "--namespace", namespace) == "run 2\n"
    assert cluster.node.logs(namespace, "twice") == "run 1\nrun 2\n"


def test_helm_and_kubectl_are_the_real_ones_and_errors_say_what_they_said(cluster: LocalCluster) -> None:
    version = json.loads(cluster.kubectl("version", "--output=json"))
    assert version["serverVersion"]["gitVersion"] == "v1.34.4"
    assert cluster.helm("version", "--short").startswith("v3.")
    with pytest.raises(CommandError, match=r"kubectl get nothings.*doesn't have a resource type"):
        cluster.kubectl("get", "nothings")
