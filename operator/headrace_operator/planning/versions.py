"""QueueVersion objects: what they must say, which are missing, and which have been kept long enough."""

from __future__ import annotations

from collections.abc import Container, Iterator

from headrace.topology import Topology
from headrace_operator.api.queue_status import Phase
from headrace_operator.api.queue_version import QueueVersionStatus
from headrace_operator.observed import Case, QueueVersionObject
from headrace_operator.planning.drain import drained
from headrace_operator.planning.promotion import discard
from headrace_operator.reasons import Reason, normal
from headrace_operator.steps import (
    AdoptQueueVersion,
    CreateQueueVersion,
    DeleteQueueVersion,
    ReportQueueVersion,
    Step,
)

ENDED: frozenset[Phase] = frozenset({"Completed", "Superseded", "Failed"})
_UNPROMOTED: frozenset[Phase] = frozenset({"Pending", "Provisioned"})
_PROMOTED: frozenset[Phase] = frozenset({"Active", "Draining", "Drained"})


def keep_versions(case: Case, topology: Topology) -> list[Step]:
    """Return the steps that make the QueueVersions tell the truth about a topology that is as it should be."""
    present = {version.version for version in case.seen.versions}
    steps: list[Step] = [
        CreateQueueVersion(number, version.partitions)
        for number, version in topology.versions.items()
        if number not in present
    ]
    for version in case.seen.versions:
        if version.ownership == "orphan":
            steps.append(AdoptQueueVersion(version.name, version.uid))
        elif version.ownership == "ours":
            steps += _keep(case, topology, version)
    return steps + list(_forget(case, topology))


def version_status(case: Case, topology: Topology, version: QueueVersionObject) -> QueueVersionStatus:
    """Return what the status of ``version`` must be."""
    old, now = version.status, case.now
    number = version.version
    new = old.model_copy(update={"observed_generation": 1})
    if number in topology.versions:
        promoted = {"promoted_at": old.promoted_at or now, "completed_at": None}
        if number == topology.active:
            return new.model_copy(update={"phase": "Active", "drained_since": None, **promoted})
        removing = topology.versions[number].state == "removing"
        if removing or drained(case.backend.counts.get(number, {})):
            return new.model_copy(update={"phase": "Drained", "drained_since": old.drained_since or now, **promoted})
        return new.model_copy(update={"phase": "Draining", "drained_since": None, **promoted})
    if old.phase in _PROMOTED:
        ended = {"phase": "Completed", "completed_at": now, "drained_since": old.drained_since or now}
        return new.model_copy(update=ended)
    if old.phase in _UNPROMOTED:
        return new.model_copy(update={"phase": "Superseded", "completed_at": now})
    return new


def failed_versions(case: Case, kept: Container[int]) -> list[Step]:
    """Return the steps that report every promoted version but the ``kept`` ones as lost with the data of its Redis."""
    return [
        ReportQueueVersion(v.name, v.status.model_copy(update={"phase": "Failed", "completed_at": case.now}))
        for v in case.seen.versions
        if v.ownership == "ours" and v.version not in kept and v.status.phase in _PROMOTED
    ]


def _keep(case: Case, topology: Topology, version: QueueVersionObject) -> Iterator[Step]:
    if topology.highest < version.version == case.spec.version:
        return  # on its way to promotion
    status = version_status(case, topology, version)
    if status == version.status:
        return
    event = None
    if status.phase == "Superseded":
        if left := discard(case, version):
            yield from left
            return
        event = normal(Reason.SUPERSEDED, f"v{version.version} will not be promoted")
    yield ReportQueueVersion(version.name, status, event=event)


def _forget(case: Case, topology: Topology) -> Iterator[Step]:
    ended = sorted(
        (
            version
            for version in case.seen.versions
            if version.ownership == "ours"
            and version.status.phase in ENDED
            and version.version not in topology.versions
            and version.version != case.spec.version
        ),
        key=lambda version: version.version,
    )
    for version in ended[: max(0, len(ended) - case.spec.history_limit)]:
        yield DeleteQueueVersion(version.name, version.uid)
