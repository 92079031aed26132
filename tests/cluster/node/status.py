"""The status a kubelet would report, computed from values."""

from __future__ import annotations

import datetime
import signal
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from tests.cluster.rest import Object


def timestamp(moment: datetime.datetime) -> str:
    """RFC 3339 in whole seconds, as in API objects."""
    return moment.astimezone(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass(frozen=True)
class Waiting:
    """The container is not running and has not ended for good."""

    reason: str
    message: str = ""

    def as_dict(self) -> Object:
        return {"waiting": {"reason": self.reason} | ({"message": self.message} if self.message else {})}


@dataclass(frozen=True)
class Running:
    """The container's process runs."""

    started: datetime.datetime

    def as_dict(self) -> Object:
        return {"running": {"startedAt": timestamp(self.started)}}


@dataclass(frozen=True)
class Terminated:
    """The container's process has ended; ``exit_code`` is 128 + signal if a signal ended it."""

    exit_code: int
    signal: int
    reason: str
    message: str
    started: datetime.datetime
    finished: datetime.datetime
    container_id: str

    def as_dict(self) -> Object:
        state: Object = {
            "exitCode": self.exit_code,
            "reason": self.reason,
            "startedAt": timestamp(self.started),
            "finishedAt": timestamp(self.finished),
            "containerID": self.container_id,
        }
        if self.signal:
            state["signal"] = self.signal
        if self.message:
            state["message"] = self.message
        return {"terminated": state}


State = Waiting | Running | Terminated


def terminated(
    code: int, *, message: str, started: datetime.datetime, finished: datetime.datetime, container_id: str
) -> Terminated:
    """From a process's return code (negative: the signal that ended it)."""
    number = -code if code < 0 else 0
    if number and not message:
        message = f"ended by {signal.Signals(number).name}"
    exit_code = 128 + number if number else code
    reason = "Completed" if exit_code == 0 else "Error"
    return Terminated(exit_code, number, reason, message, started, finished, container_id)


@dataclass(frozen=True)
class ContainerStatus:
    """What is known of one container."""

    name: str
    image: str
    state: State
    last: Terminated | None = None
    restarts: int = 0
    started: bool = False
    ready: bool = False
    container_id: str = ""

    def change(self, **values: Any) -> ContainerStatus:
        """A copy with other values."""
        return replace(self, **values)

    def as_dict(self) -> Object:
        return {
            "name": self.name,
            "image": self.image,
            "imageID": "",
            "containerID": self.container_id,
            "state": self.state.as_dict(),
            "lastState": self.last.as_dict() if self.last else {},
            "restartCount": self.restarts,
            "started": self.started,
            "ready": self.ready,
        }


def should_restart(policy: str, exit_code: int, *, init: bool) -> bool:
    """Whether a container that ended is run again. An init container that succeeded never is."""
    if exit_code == 0:
        return policy == "Always" and not init
    return policy in ("Always", "OnFailure")


def backoff(restarts: int, base: float, cap: float) -> float:
    """Seconds to wait before restart number ``restarts`` (from 0): none, then base, doubled up to the cap."""
    return 0.0 if restarts == 0 else min(cap, base * 2.0 ** min(restarts - 1, 30))


def phase(policy: str, init: Sequence[ContainerStatus], main: Sequence[ContainerStatus], *, ending: bool) -> str:
    """Pending, Running, Succeeded or Failed. ``ending``: nothing will be started any more."""
    for each in init:
        if isinstance(each.state, Terminated) and each.state.exit_code == 0:
            continue
        failed = isinstance(each.state, Terminated) and not should_restart(policy, each.state.exit_code, init=True)
        return "Failed" if failed or ending else "Pending"
    if any(isinstance(each.state, Running) for each in main):
        return "Running"
    ended = [each.state for each in main if isinstance(each.state, Terminated)]
    if len(ended) == len(main):
        again = any(should_restart(policy, state.exit_code, init=False) for state in ended)
        if again and not ending:
            return "Running"
        return "Failed" if any(state.exit_code != 0 for state in ended) else "Succeeded"
    if ending:
        return "Failed"
    # Waiting between two runs is still Running; waiting before the first one is Pending.
    return "Running" if any(each.last for each in main) or ended else "Pending"


def conditions(
    pod: Object,
    init: Sequence[ContainerStatus],
    main: Sequence[ContainerStatus],
    previous: Sequence[Object],
    *,
    pod_phase: str,
    now: datetime.datetime,
) -> list[Object]:
    """The kubelet's conditions; the time of the last transition is kept while the status stays the same."""
    before = {each["type"]: each for each in previous}
    initialized = all(isinstance(each.state, Terminated) and each.state.exit_code == 0 for each in init)
    not_ready = [each.name for each in main if not each.ready]
    gates = [gate["conditionType"] for gate in pod["spec"].get("readinessGates", [])]
    closed = [gate for gate in gates if before.get(gate, {}).get("status") != "True"]
    over = {"Succeeded": "PodCompleted", "Failed": "PodFailed"}.get(pod_phase, "")
    unready = (over or "ContainersNotReady", "" if over else f"containers with unready status: {not_ready}")
    if not not_ready and closed:
        unready = ("ReadinessGatesNotReady", f"the status of pod readiness gates is not True: {closed}")
    values = [
        ("PodReadyToStartContainers", True, "", ""),
        ("Initialized", initialized, "" if initialized else "ContainersNotInitialized", ""),
        ("ContainersReady", not not_ready, *(("", "") if not not_ready else unready)),
        ("Ready", not not_ready and not closed, *(("", "") if not not_ready and not closed else unready)),
    ]
    result = []
    for kind, good, reason, message in values:
        status = "True" if good else "False"
        known = before.get(kind, {})
        kept = known.get("lastTransitionTime") if known.get("status") == status else None
        result.append(
            {
                "type": kind,
                "status": status,
                "reason": reason,
                "message": message,
                "lastTransitionTime": kept or timestamp(now),
            }
        )
    return result


def pod_status(
    pod: Object,
    init: Sequence[ContainerStatus],
    main: Sequence[ContainerStatus],
    *,
    ending: bool,
    pod_ip: str,
    host_ip: str,
    started: datetime.datetime,
    now: datetime.datetime,
) -> Object:
    """A strategic merge patch of the status subresource; conditions of others stay."""
    pod_phase = phase(pod["spec"].get("restartPolicy", "Always"), init, main, ending=ending)
    previous = pod.get("status", {}).get("conditions", [])
    return {
        "phase": pod_phase,
        "hostIP": host_ip,
        "hostIPs": [{"ip": host_ip}],
        "podIP": pod_ip,
        "podIPs": [{"ip": pod_ip}],
        "startTime": timestamp(started),
        "initContainerStatuses": [each.as_dict() for each in init],
        "containerStatuses": [each.as_dict() for each in main],
        "conditions": conditions(pod, init, main, previous, pod_phase=pod_phase, now=now),
    }
