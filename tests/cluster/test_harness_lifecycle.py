"""Exit codes, signals, restarts, probes and deletion, as a kubelet does them."""

from __future__ import annotations

import datetime
import os
import signal

from tests.cluster.cluster import LocalCluster
from tests.cluster.manifests import SLEEP, container, deployment, pod
from tests.cluster.rest import Object


def pod_of(cluster: LocalCluster, namespace: str, name: str) -> Object:
    found = cluster.get("v1", "Pod", name, namespace)
    assert found is not None, f"no Pod {name}"
    return found


def container_of(cluster: LocalCluster, namespace: str, name: str) -> Object:
    """Status of the only container; LookupError while there is none."""
    return dict(pod_of(cluster, namespace, name)["status"]["containerStatuses"][0])


def wait_ready(cluster: LocalCluster, namespace: str, name: str, ready: bool = True) -> None:
    cluster.wait_for(lambda: container_of(cluster, namespace, name)["ready"] is ready, what=f"{name} ready={ready}")


def wait_phase(cluster: LocalCluster, namespace: str, name: str, *phases: str) -> None:
    def reached() -> bool:
        return pod_of(cluster, namespace, name)["status"]["phase"] in phases

    cluster.wait_for(reached, what=f"{name} is {' or '.join(phases)}")


def wait_log(cluster: LocalCluster, namespace: str, name: str, text: str) -> None:
    cluster.wait_for(lambda: text in cluster.node.logs(namespace, name), what=f"{text!r} in the log of {name}")


def reasons(cluster: LocalCluster, namespace: str, name: str) -> set[str]:
    """Reasons of the Pod's events."""
    events = cluster.objects("v1", "Event", namespace)
    return {event["reason"] for event in events if event["involvedObject"]["name"] == name}


def terminated(status: Object) -> Object:
    return dict(status["state"]["terminated"])


def test_exit_codes_and_phases_without_restart(cluster: LocalCluster, namespace: str) -> None:
    for name, code in (("good", 0), ("bad", 3)):
        cluster.apply(pod(name, container(f"raise SystemExit({code})"), restartPolicy="Never"), namespace=namespace)
    for name, code, phase in (("good", 0, "Succeeded"), ("bad", 3, "Failed")):
        wait_phase(cluster, namespace, name, phase)
        state = terminated(container_of(cluster, namespace, name))
        assert state["exitCode"] == code
        assert state["reason"] == ("Completed" if code == 0 else "Error")
        assert "signal" not in state


def test_death_by_signal_is_128_plus_signal(cluster: LocalCluster, namespace: str) -> None:
    cluster.apply(pod("victim", container(SLEEP), restartPolicy="Never"), namespace=namespace)
    wait_ready(cluster, namespace, "victim")
    cluster.node.kill(namespace, "victim")
    wait_phase(cluster, namespace, "victim", "Failed")
    state = terminated(container_of(cluster, namespace, "victim"))
    assert (state["exitCode"], state["signal"], state["reason"]) == (137, 9, "Error")


def test_command_that_does_not_exist_is_a_start_error(cluster: LocalCluster, namespace: str) -> None:
    broken = {"name": "main", "image": "x", "command": ["no-such-program"]}
    cluster.apply(pod("broken", broken, restartPolicy="Never"), namespace=namespace)
    wait_phase(cluster, namespace, "broken", "Failed")
    state = terminated(container_of(cluster, namespace, "broken"))
    assert (state["exitCode"], state["reason"]) == (128, "StartError")
    assert "no-such-program" in state["message"]


def test_log_tail_as_termination_message(cluster: LocalCluster, namespace: str) -> None:
    noisy = container("raise SystemExit('because of this')", terminationMessagePolicy="FallbackToLogsOnError")
    cluster.apply(pod("noisy", noisy, restartPolicy="Never"), namespace=namespace)
    wait_phase(cluster, namespace, "noisy", "Failed")
    assert terminated(container_of(cluster, namespace, "noisy"))["message"] == "because of this"


def test_failing_container_restarts_with_growing_back_off(cluster: LocalCluster, namespace: str) -> None:
    cluster.apply(pod("crash", container("print('run'); raise SystemExit(2)")), namespace=namespace)
    waits: set[str] = set()

    def fifth_restart() -> bool:
        status = container_of(cluster, namespace, "crash")
        waiting = status["state"].get("waiting", {})
        if waiting.get("reason") == "CrashLoopBackOff":
            waits.add(waiting["message"].split(" restarting")[0])
            assert status["lastState"]["terminated"]["exitCode"] == 2
            assert not status["ready"]
        return int(status["restartCount"]) >= 5

    cluster.wait_for(fifth_restart)
    # The first restart comes at once, then 0.2 s, doubled each time. The short ones may pass between two looks.
    assert "back-off 1.6 s" in waits
    assert waits <= {f"back-off {seconds} s" for seconds in ("0.2", "0.4", "0.8", "1.6", "3.2")}
    assert pod_of(cluster, namespace, "crash")["status"]["phase"] == "Running"
    wait_log(cluster, namespace, "crash", "run\n" * 6)


def test_liveness_failure_ends_the_process_and_restarts_it(cluster: LocalCluster, namespace: str) -> None:
    script = """
        import os, signal, sys
        def leave(*_):
            print("asked to leave", flush=True)
            sys.exit(0)
        signal.signal(signal.SIGTERM, leave)
        open("/state/alive", "w").close()
        while True: signal.pause()
    """
    check = ["python", "-c", "import os, sys; sys.exit(not os.path.exists('/state/alive'))"]
    probed = container(
        script,
        volumeMounts=[{"name": "state", "mountPath": "/state"}],
        livenessProbe={"exec": {"command": check}, "periodSeconds": 1, "failureThreshold": 1, "initialDelaySeconds": 1},
        lifecycle={"preStop": {"exec": {"command": ["python", "-c", "open('/state/stopping', 'w').close()"]}}},
    )
    cluster.apply(pod("probed", probed, volumes=[{"name": "state", "emptyDir": {}}]), namespace=namespace)
    wait_ready(cluster, namespace, "probed")
    uid = pod_of(cluster, namespace, "probed")["metadata"]["uid"]
    state = cluster.control_plane.folder / "nodes" / "node-1" / uid / "volumes" / "state"
    cluster.wait_for(lambda: (state / "alive").exists())
    (state / "alive").unlink()
    cluster.wait_for(lambda: container_of(cluster, namespace, "probed")["restartCount"] == 1)
    assert "asked to leave" in cluster.node.logs(namespace, "probed")
    assert (state / "stopping").exists()
    wait_ready(cluster, namespace, "probed")
    last = container_of(cluster, namespace, "probed")["lastState"]["terminated"]
    assert last["exitCode"] == 0
    cluster.wait_for(lambda: {"Unhealthy", "Killing", "Started"} <= reasons(cluster, namespace, "probed"))


def test_failing_post_start_hook_ends_the_container(cluster: LocalCluster, namespace: str) -> None:
    hook = {"exec": {"command": ["python", "-c", "raise SystemExit(1)"]}}
    cluster.apply(
        pod("hooked", container(SLEEP, lifecycle={"postStart": hook}), restartPolicy="Never"), namespace=namespace
    )
    wait_phase(cluster, namespace, "hooked", "Failed")
    state = terminated(container_of(cluster, namespace, "hooked"))
    assert (state["exitCode"], state["signal"]) == (143, 15)
    cluster.wait_for(lambda: "FailedPostStartHook" in reasons(cluster, namespace, "hooked"))


def test_readiness_follows_a_tcp_port_and_starts_false(cluster: LocalCluster, namespace: str) -> None:
    script = """
        import os, signal, socket
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1, signal.SIGUSR2])
        print("waiting", flush=True)
        signal.sigwait([signal.SIGUSR1])
        server = socket.create_server((os.environ["IP"], 9000))
        signal.sigwait([signal.SIGUSR2])
        server.close()
        while True: signal.pause()
    """
    probe = {"tcpSocket": {"port": 9000}, "periodSeconds": 1, "failureThreshold": 1}
    env = [{"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}]
    cluster.apply(pod("door", container(script, env=env, readinessProbe=probe)), namespace=namespace)
    wait_log(cluster, namespace, "door", "waiting")
    assert container_of(cluster, namespace, "door")["ready"] is False
    cluster.node.kill(namespace, "door", number=signal.SIGUSR1)
    wait_ready(cluster, namespace, "door")
    cluster.node.kill(namespace, "door", number=signal.SIGUSR2)
    wait_ready(cluster, namespace, "door", ready=False)
    conditions = {each["type"]: each for each in pod_of(cluster, namespace, "door")["status"]["conditions"]}
    assert conditions["Ready"]["status"] == "False"
    assert conditions["Ready"]["reason"] == "ContainersNotReady"
    assert container_of(cluster, namespace, "door")["restartCount"] == 0


def test_startup_probe_holds_back_the_other_probes(cluster: LocalCluster, namespace: str) -> None:
    slow = container(
        """
        import signal
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
        print("waiting", flush=True)
        signal.sigwait([signal.SIGUSR1])
        open("/state/started", "w").close()
        while True: signal.pause()
        """,
        volumeMounts=[{"name": "state", "mountPath": "/state"}],
        startupProbe={
            "exec": {"command": ["python", "-c", "import os, sys; sys.exit(not os.path.exists('/state/started'))"]},
            "periodSeconds": 1,
            "failureThreshold": 60,
            "timeoutSeconds": 10,
        },
        # Would restart it at once if it ran before the startup probe has passed.
        livenessProbe={
            "exec": {
                "command": [
                    "python",
                    "-c",
                    "import os, sys; print('live'); sys.exit(not os.path.exists('/state/started'))",
                ]
            },
            "failureThreshold": 1,
            "periodSeconds": 1,
            "timeoutSeconds": 10,
        },
    )
    cluster.apply(pod("slow", slow, volumes=[{"name": "state", "emptyDir": {}}]), namespace=namespace)
    wait_log(cluster, namespace, "slow", "waiting")
    uid = pod_of(cluster, namespace, "slow")["metadata"]["uid"]
    probes = cluster.control_plane.folder / "nodes" / "node-1" / uid / "containers" / "main" / "exec.log"
    assert container_of(cluster, namespace, "slow")["started"] is False
    cluster.node.kill(namespace, "slow", number=signal.SIGUSR1)
    cluster.wait_for(lambda: container_of(cluster, namespace, "slow")["started"])
    cluster.wait_for(lambda: "live" in probes.read_text(), what="the liveness probe ran")
    assert container_of(cluster, namespace, "slow")["restartCount"] == 0


def test_deletion_is_prestop_then_sigterm_to_the_group(cluster: LocalCluster, namespace: str) -> None:
    script = """
        import os, signal, sys
        def say(line):
            os.write(1, f"{line}\\n".encode())  # one write a line: two processes share the log
        def leave(number, frame):
            say(f"{name} got SIGTERM after hook: {os.path.exists('/state/hook')}")
            if child:
                os.wait()  # when the first process ends, the others are killed
            sys.exit(0)
        name, child = "parent", 0
        signal.signal(signal.SIGTERM, leave)
        child = os.fork()
        if not child:
            name = "child"
        say(f"{name} up")
        while True: signal.pause()
    """
    hook = {"exec": {"command": ["python", "-c", "open('/state/hook', 'w').close()"]}}
    polite = container(script, lifecycle={"preStop": hook}, volumeMounts=[{"name": "state", "mountPath": "/state"}])
    cluster.apply(pod("polite", polite, volumes=[{"name": "state", "emptyDir": {}}]), namespace=namespace)
    wait_log(cluster, namespace, "polite", "child up")
    wait_log(cluster, namespace, "polite", "parent up")
    cluster.delete("v1", "Pod", "polite", namespace)
    cluster.wait_for(lambda: cluster.get("v1", "Pod", "polite", namespace) is None)
    log = cluster.node.logs(namespace, "polite")
    assert "parent got SIGTERM after hook: True" in log
    assert "child got SIGTERM after hook: True" in log


def test_process_that_ignores_sigterm_is_killed_after_the_grace(cluster: LocalCluster, namespace: str) -> None:
    script = """
        import signal
        signal.signal(signal.SIGTERM, lambda *_: print("no", flush=True))
        print("up", flush=True)
        while True: signal.pause()
    """
    stubborn = pod("stubborn", container(script), terminationGracePeriodSeconds=2)
    stubborn["metadata"]["finalizers"] = ["headrace.test/keep"]  # so that its last status can be read
    cluster.apply(stubborn, namespace=namespace)
    wait_log(cluster, namespace, "stubborn", "up")
    pid = cluster.node.pid(namespace, "stubborn")
    assert pid is not None

    cluster.delete("v1", "Pod", "stubborn", namespace)
    cluster.wait_for(lambda: "terminated" in container_of(cluster, namespace, "stubborn")["state"])

    assert not process_runs(pid)
    assert "no" in cluster.node.logs(namespace, "stubborn")
    state = terminated(container_of(cluster, namespace, "stubborn"))
    assert (state["exitCode"], state["signal"]) == (137, 9)
    deleted = datetime.datetime.fromisoformat(pod_of(cluster, namespace, "stubborn")["metadata"]["deletionTimestamp"])
    # deletionTimestamp is the end of the grace; both times are cut to seconds.
    finished = datetime.datetime.fromisoformat(state["finishedAt"])
    assert finished >= deleted - datetime.timedelta(seconds=1), "it was not given its grace"

    cluster.wait_for(lambda: pod_of(cluster, namespace, "stubborn")["metadata"]["deletionGracePeriodSeconds"] == 0)
    cluster.patch("v1", "Pod", "stubborn", namespace, {"metadata": {"finalizers": None}})
    cluster.wait_for(lambda: cluster.get("v1", "Pod", "stubborn", namespace) is None)
    assert cluster.node.pid(namespace, "stubborn") is None


def test_second_deletion_with_a_shorter_grace_brings_the_end_forward(cluster: LocalCluster, namespace: str) -> None:
    script = "import signal; signal.signal(signal.SIGTERM, lambda *_: print('no', flush=True)); print('up', flush=True)"
    stubborn = container(f"{script}\nwhile True: signal.pause()")
    # The first grace is longer than the test may take.
    cluster.apply(pod("patient", stubborn, terminationGracePeriodSeconds=3600), namespace=namespace)
    wait_log(cluster, namespace, "patient", "up")
    cluster.delete("v1", "Pod", "patient", namespace)
    wait_log(cluster, namespace, "patient", "no")
    cluster.delete("v1", "Pod", "patient", namespace, grace=1)
    cluster.wait_for(lambda: cluster.get("v1", "Pod", "patient", namespace) is None)


def test_forced_deletion_ends_the_process_too(cluster: LocalCluster, namespace: str) -> None:
    cluster.apply(pod("forced", container(SLEEP), terminationGracePeriodSeconds=3600), namespace=namespace)
    wait_ready(cluster, namespace, "forced")
    pid = cluster.node.pid(namespace, "forced")
    assert pid is not None
    cluster.delete("v1", "Pod", "forced", namespace, grace=0)
    assert cluster.get("v1", "Pod", "forced", namespace) is None
    cluster.wait_for(lambda: not process_runs(pid))


def test_scale_down_and_rollout_leave_the_wanted_pods_only(cluster: LocalCluster, namespace: str) -> None:
    def roll_out(version: str, count: int) -> None:
        variable = {"name": "V", "value": version}
        runner = container(SLEEP, env=[variable])
        cluster.apply(deployment("roll", runner, replicas=count), namespace=namespace)
        cluster.kubectl("rollout", "status", "deployment/roll", "--timeout=110s", "--namespace", namespace)

        def only_these() -> bool:
            pods = cluster.pods(namespace)
            return len(pods) == count and all(variable in each["spec"]["containers"][0]["env"] for each in pods)

        cluster.wait_for(only_these)

    roll_out("1", 3)
    roll_out("2", 2)


def process_runs(pid: int) -> bool:
    """Whether a process or group of this number exists."""
    try:
        os.killpg(pid, 0)
    except ProcessLookupError:
        return False
    return True
