"""The way of the version that the spec asks for: checks, provisioning, gates, promotion."""

from __future__ import annotations

from headrace.topology import Topology
from headrace_operator.api.names import PROMOTE
from headrace_operator.api.queue_version import QueueVersionStatus
from headrace_operator.observed import Case, QueueVersionObject
from headrace_operator.reasons import Finding, Reason, normal
from headrace_operator.steps import (
    AdoptQueueVersion,
    CreateQueueVersion,
    DeleteQueueVersion,
    Discard,
    Promote,
    Provision,
    ReportQueueVersion,
    Step,
)


def spec_refused(case: Case) -> Finding | None:
    """Say why the wanted version contradicts the topology, which stays as it is; None if it does not."""
    spec, topology = case.spec, case.backend.topology
    if topology is None or spec.version > topology.highest:
        return None
    if spec.version == topology.active:
        if spec.partitions == topology.partitions:
            return None
        return Finding(
            Reason.INVALID_SPEC,
            f"spec.partitions is {spec.partitions}, but version {spec.version} is active with {topology.partitions}; "
            f"set spec.version to {topology.highest + 1} to change the number, or spec.partitions back to "
            f"{topology.partitions}",
        )
    return Finding(
        Reason.INVALID_SPEC,
        f"spec.version is {spec.version}, but version {topology.active} is active (highest ever {topology.highest}); "
        f"set spec.version to {topology.highest + 1} or higher, with the old number of partitions to undo a bump",
    )


def promotion(case: Case) -> tuple[list[Step], Finding | None]:
    """Return the next steps towards the wanted version, and what holds it up."""
    spec, topology = case.spec, case.backend.topology
    if topology is not None and topology.active == spec.version:
        return [], None
    target = next((version for version in case.seen.versions if version.version == spec.version), None)
    if target is None:
        return [CreateQueueVersion(spec.version, spec.partitions)], None
    if finding := _object_in_the_way(case, target):
        return [], finding
    if target.spec.partitions != spec.partitions:
        # An earlier wish for this number, withdrawn before it was promoted.
        left = discard(case, target)
        return left or [DeleteQueueVersion(target.name, target.uid)], None
    if target.ownership == "orphan":
        return [AdoptQueueVersion(target.name, target.uid)], None
    counts = case.backend.counts.get(spec.version, {})
    if len(counts) < spec.partitions or any(count.state == "absent" for count in counts.values()):
        return [Provision(topology, spec.version, spec.partitions)], None
    if topology is not None:
        if finding := _gate(case, topology):
            provisioned = QueueVersionStatus(observed_generation=1, phase="Provisioned")
            told = target.status.phase == "Provisioned"
            return [] if told else [ReportQueueVersion(target.name, provisioned)], finding
        was = f"v{topology.active} drains"
    else:
        was = "the queue takes jobs"
    event = normal(Reason.PROMOTED, f"v{spec.version} with {spec.partitions} partitions is active; {was}")
    return [Promote(spec.version, spec.partitions, spec.settings(), case.seen.owner, event=event)], None


def discard(case: Case, version: QueueVersionObject) -> list[Step]:
    """Return the step that removes the partitions of a version that will not be promoted; empty if none is left."""
    counts = case.backend.counts.get(version.version, {})
    if all(count.state == "absent" or count.live for count in counts.values()):
        return []
    return [Discard(version.version, version.spec.partitions)]


def _gate(case: Case, topology: Topology) -> Finding | None:
    spec, older = case.spec, len(topology.older)
    if older + 1 > spec.max_draining_versions:
        return Finding(
            Reason.TOO_MANY_DRAINING,
            f"v{spec.version} waits: {older} versions drain already and v{topology.active} would be one more, above "
            f"spec.maxDrainingVersions {spec.max_draining_versions}; wait for them, or raise it",
        )
    if spec.promotion == "Manual" and case.queue.annotations.get(PROMOTE) != str(spec.version):
        return Finding(
            Reason.AWAITING_PROMOTION,
            f"v{spec.version} with {spec.partitions} partitions is provisioned; annotate the Queue with "
            f"{PROMOTE}={spec.version} to promote it",
        )
    return None


def _object_in_the_way(case: Case, target: QueueVersionObject) -> Finding | None:
    if target.ownership == "dying":
        return Finding(
            Reason.WAITING_FOR_DELETION,
            f"QueueVersion {target.name} of an earlier Queue {case.queue.name} is being deleted",
        )
    if target.ownership == "foreign" or (
        target.ownership == "orphan" and target.spec.partitions != case.spec.partitions
    ):
        return Finding(
            Reason.QUEUE_VERSION_CONFLICT,
            f"QueueVersion {target.name} is not this Queue's; delete it, or set spec.version to a higher number",
        )
    return None
