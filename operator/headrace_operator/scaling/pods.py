"""What Pods and the registry of workers say about the workers, as values."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from headrace.stores.base import WorkerEntry
from headrace_operator.scaling.estimates import LONGEST_COLD_START
from headrace_operator.scaling.victims import Worker

DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
RETIRE_SECONDS = 30.0
"""A worker that was told to take no more takes jobs again after this time, unless it is told again."""
LEAVE_SECONDS = 10.0
"""A worker is stopped only if it takes no jobs for so long by its own word: until its Pod has been told to end."""
SILENT_SECONDS = 70.0
"""One that has never been in the registry, which forgets after a minute, and is not for so long, takes no jobs."""
Body = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class WorkerPod:
    """A Pod of the workers. ``created``, ``ready_since``: seconds since the epoch; None: it is not ready.

    ``cost``: what its annotation says that its deletion costs. ``runs_since``: when the last of its containers began
    to run, None if one was restarted, or that is not told. ``changed``: when a container of it began or ended last.
    """

    name: str
    uid: str
    created: float
    ready_since: float | None
    cost: int = 0
    runs_since: float | None = None
    changed: float = 0.0

    @property
    def start_seconds(self) -> float | None:
        """How long it took to become ready; None if it is not."""
        return None if self.ready_since is None else max(0.0, self.ready_since - self.created)


def living_pods(bodies: Iterable[Body]) -> list[WorkerPod]:
    """Return the Pods that are neither stopping nor ended."""
    return [
        _pod(body)
        for body in bodies
        if "deletionTimestamp" not in body["metadata"]
        and body.get("status", {}).get("phase") not in ("Succeeded", "Failed")
    ]


def _pod(body: Body) -> WorkerPod:
    metadata = body["metadata"]
    conditions = body.get("status", {}).get("conditions", [])
    ready = next((each for each in conditions if each["type"] == "Ready" and each["status"] == "True"), None)
    try:
        cost = int(metadata.get("annotations", {}).get(DELETION_COST, 0))
    except ValueError:
        cost = 0
    containers = body.get("status", {}).get("containerStatuses", [])
    return WorkerPod(
        metadata["name"],
        metadata["uid"],
        _seconds(metadata["creationTimestamp"]),
        None if ready is None else _seconds(ready["lastTransitionTime"]),
        cost,
        _runs_since(containers),
        _changed(containers),
    )


def _runs_since(containers: Iterable[Body]) -> float | None:
    running = [each.get("state", {}).get("running", {}).get("startedAt") for each in containers]
    if not running or None in running or any(each.get("restartCount") for each in containers):
        return None
    return max(_seconds(at) for at in running)


def _changed(containers: Iterable[Body]) -> float:
    states = [each.get(when, {}) for each in containers for when in ("state", "lastState")]
    began = [state.get("running", {}).get("startedAt") for state in states]
    ended = [state.get("terminated", {}).get("finishedAt") for state in states]
    return max((_seconds(at) for at in (*began, *ended) if at), default=0.0)


def new_starts(pods: Iterable[WorkerPod], known: Collection[str], *, measured: bool = False) -> dict[str, float]:
    """Return the uids of Pods that have become ready since, with how long that took, oldest first.

    If other starts were ``measured``, one does not count that is longer than any: somebody who was ready before, and
    is again, looks just like it.
    """
    started = [
        pod
        for pod in pods
        if pod.ready_since is not None
        and pod.uid not in known
        and not (measured and pod.ready_since - (pod.runs_since or pod.created) > LONGEST_COLD_START)
    ]
    return {pod.uid: pod.start_seconds or 0.0 for pod in sorted(started, key=lambda pod: pod.created)}


def started_before(pods: Iterable[WorkerPod], now: float, *, measured: bool) -> set[str]:
    """Return the uids of Pods that were there before anybody looked whose start cannot be told any more.

    All of them if a predecessor has ``measured`` starts; else those that have been there, without being ready, for
    longer than any start counts: they may have been ready before. ``now``: seconds since the epoch.
    """
    return {
        pod.uid
        for pod in pods
        if measured or (now if pod.ready_since is None else pod.ready_since) - pod.created > LONGEST_COLD_START
    }


def heard_of(heard: Mapping[str, float], entries: Iterable[WorkerEntry], now: float) -> dict[str, float]:
    """Return when each Pod was heard of last: as was known before (``heard``), or by what is said ``now``."""
    known = dict(heard)
    for entry in entries:
        if entry.beat.pod and not entry.gone:
            known[entry.beat.pod] = max(known.get(entry.beat.pod, 0.0), now - entry.heard_ms / 1000)
    return known


def silent_pods(pods: Iterable[WorkerPod], heard: Mapping[str, float]) -> set[str]:
    """Return the Pods of which was ``heard``, and none of whose containers began or ended since."""
    return {pod.name for pod in pods if pod.name in heard and pod.changed <= heard[pod.name]}


def workers_of(
    pods: Iterable[WorkerPod],
    entries: Iterable[WorkerEntry],
    retired: Mapping[str, float],
    now: float,
    silent: Collection[str] = (),
) -> list[Worker]:
    """Put Pods and what their worker processes say together.

    ``retired``: names of Pods that were told to take no more, with the time ``now`` of then. ``silent``: of those whose
    workers, if they say nothing now, have fallen silent.
    """
    by_pod: dict[str, list[WorkerEntry]] = {}
    for entry in entries:
        if entry.beat.pod and not entry.gone:
            by_pod.setdefault(entry.beat.pod, []).append(entry)
    return [
        _worker(pod, by_pod.get(pod.name, []), retired.get(pod.name), now, silent=pod.name in silent) for pod in pods
    ]


def _worker(pod: WorkerPod, entries: list[WorkerEntry], told: float | None, now: float, *, silent: bool) -> Worker:
    in_flight = sum(entry.beat.in_flight for entry in entries)
    # A handler that blocks its process keeps it out of the registry, while its leases are renewed beside it.
    unheard = silent and not entries
    quiet = told is not None and in_flight == 0 and not unheard and _stands_by(entries, now - told)
    started = pod.ready_since is not None or unheard or bool(entries)
    return Worker(pod.name, started, in_flight, told is not None, quiet, pod.created)


def _stands_by(entries: list[WorkerEntry], told_seconds: float) -> bool:
    """Whether these said that they hold no job when they were taking none, as they were told ``told_seconds`` ago.

    However late their beats come: silence is no answer, for a process that is frozen may hold jobs, nor is obedience to
    an order that has been taken back since. One that nobody has ever known of has no jobs to hold.
    """
    if not entries:
        return told_seconds > SILENT_SECONDS
    still = min(entry.stands_by_ms for entry in entries) / 1000
    return still >= max(LEAVE_SECONDS, RETIRE_SECONDS - told_seconds)


def processes_of(entries: Iterable[WorkerEntry], pods: Collection[str]) -> list[str]:
    """Return the names by which the workers of these Pods are known in the registry."""
    return [entry.worker for entry in entries if entry.beat.pod in pods and not entry.gone]


def slots_of(entries: Iterable[WorkerEntry]) -> int | None:
    """Return how many jobs one Pod runs at a time, by what its processes say: the least that any has; None: unknown."""
    slots: dict[str, int] = {}
    for entry in entries:
        if entry.beat.slots > 0 and not entry.gone:
            slots[_place(entry)] = slots.get(_place(entry), 0) + entry.beat.slots
    return min(slots.values(), default=None)


def places_of(entries: Iterable[WorkerEntry]) -> set[str]:
    """Return the Pods that workers run in; a worker outside of any is a place of its own."""
    return {_place(entry) for entry in entries if not entry.gone}


def _place(entry: WorkerEntry) -> str:
    return entry.beat.pod or entry.worker


def _seconds(time: str) -> float:
    return datetime.fromisoformat(time.replace("Z", "+00:00")).timestamp()
