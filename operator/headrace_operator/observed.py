"""What one pass over a Queue has seen, as values. Plans are decided from them and from nothing else."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, NamedTuple

from pydantic import ValidationError

from headrace.leadership.overview import Leader
from headrace.stores.base import Counts
from headrace.topology import Topology
from headrace_operator.api.names import GROUP, MANAGED_BY_LABEL, OPERATOR, OWNER_UID, QUEUE_KIND, QUEUE_LABEL
from headrace_operator.api.queue_spec import QueueSpec
from headrace_operator.api.queue_status import Drift, QueueStatus
from headrace_operator.api.queue_version import QueueVersionSpec, QueueVersionStatus
from headrace_operator.reasons import Finding
from headrace_operator.scaling.report import ScalingReport

Ownership = Literal["ours", "dying", "orphan", "foreign"]
"""Of an object with a name that we would give: owned by this Queue; by an earlier Queue of the same name (it will be
collected); by nobody but made by us; somebody else's."""

Object = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class QueueObject:
    """A Queue as read from the API server. ``spec`` is None if it cannot be understood; ``problem`` says why.

    ``deleted_at``: since when somebody wants it gone; None while nobody does. ``created``: as the API writes it.
    """

    namespace: str
    name: str
    uid: str
    generation: int
    resource_version: str
    annotations: Mapping[str, str]
    finalizers: tuple[str, ...]
    deleted_at: datetime | None
    spec: QueueSpec | None
    problem: str
    status: QueueStatus
    created: str = ""

    @property
    def queue_name(self) -> str:
        """Name of the queue in Redis."""
        return (self.spec.queue_name if self.spec else None) or self.name

    @property
    def keeps_workers(self) -> bool:
        """Whether what is made for the workers outlives the deletion of the Queue until its finalizer removes it.

        An ownerReference would end them at once when the Queue is deleted in the foreground.
        """
        return self.spec is not None and self.spec.deletion_policy == "Drain"

    @staticmethod
    def parse(body: Object) -> QueueObject:
        """Read an object of the API server; a spec that the models refuse is a finding, not an error."""
        metadata = body["metadata"]
        spec, problem = None, ""
        try:
            spec = QueueSpec.model_validate(body.get("spec", {}))
        except ValidationError as error:
            problem = describe(error)
        try:
            status = QueueStatus.model_validate(body.get("status", {}))
        except ValidationError:
            status = QueueStatus()  # edited by hand: a report is written anew
        return QueueObject(
            metadata["namespace"],
            metadata["name"],
            metadata["uid"],
            metadata.get("generation", 0),
            metadata["resourceVersion"],
            metadata.get("annotations", {}),
            tuple(metadata.get("finalizers", ())),
            datetime.fromisoformat(deleted) if (deleted := metadata.get("deletionTimestamp")) else None,
            spec,
            problem,
            status,
            metadata.get("creationTimestamp", ""),
        )


def describe(error: ValidationError) -> str:
    """Return one line naming each field and its problem; values are left out, they may be secret."""
    problems = (
        f"spec.{'.'.join(str(part) for part in detail['loc'])}: {detail['msg']}".replace("spec.: ", "spec: ")
        for detail in error.errors(include_url=False, include_input=False, include_context=False)
    )
    return "; ".join(problems)


@dataclass(frozen=True, slots=True)
class QueueVersionObject:
    """A QueueVersion as read from the API server."""

    name: str
    uid: str
    spec: QueueVersionSpec
    status: QueueVersionStatus
    ownership: Ownership

    @property
    def version(self) -> int:
        """Version number."""
        return self.spec.version


@dataclass(frozen=True, slots=True)
class ConnectionProblem:
    """Why the Redis of the queue cannot be used now. ``stalled``: trying again will not help."""

    finding: Finding
    stalled: bool = False


class Spot(NamedTuple):
    """Where to look whether anything has changed about a Queue, without reading what its object says.

    ``uid``: of the Queue. ``queue``: its name in Redis, ``partitions`` by version. ``may_have_workers``: a worker
    Deployment of ours is wanted, or was told of.
    """

    uid: str
    queue: str
    partitions: Mapping[int, int]
    may_have_workers: bool


class HeldJob(NamedTuple):
    """A job that holds up a drain. ``type``: "" if its record cannot be read. ``due_at``: since when it is due, ms.

    ``holder``: who runs it, in words, "" if nobody does. ``poison``: it is run apart, since its workers died or hung,
    ``expiries`` of them so far.
    """

    id: str
    type: str
    holder: str
    due_at: int = 0
    expiries: int = 0
    poison: bool = False


@dataclass(frozen=True, slots=True)
class Backend:
    """The Redis of the queue, read within one pass. ``counts``: by version, then by partition number.

    ``parked``: jobs whose type no worker knew, by version, then by type; of some partitions only if it is many.
    ``held``: by version, some jobs of those that are stuck.
    ``owner_alive``: whether the Queue that the topology names as its owner exists (None: not looked up).
    ``leader``: who leads the workers (None: nobody).
    ``secret``: name and key of the Secret that the URL comes from, None if ``url`` may be shown. ``instead_of``: why it
    is an earlier connection, and not the one that the spec leads to now. ``unsafe``: what of the server endangers jobs,
    a sentence each (None: not known).
    """

    endpoint: str
    marker: str | None
    topology: Topology | None
    counts: Mapping[int, Mapping[int, Counts]] = field(default_factory=dict)
    parked: Mapping[int, Mapping[str, int]] = field(default_factory=dict)
    owner_alive: bool | None = None
    secret: tuple[str, str] | None = None
    url: str | None = None
    instead_of: ConnectionProblem | None = None
    unsafe: tuple[str, ...] | None = ()
    leader: Leader | None = None
    held: Mapping[int, tuple[HeldJob, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class WorkersObject:
    """The Deployment with the name of the queue's workers, or the one that is only scaled.

    ``pods``: its Pods, only if they had to be looked at. ``autoscalers``: names of the HorizontalPodAutoscalers that
    set its replicas, too. ``other_queue``: name of the Queue that sets them, and goes before this one; "" if none does.
    """

    body: Object
    ownership: Ownership
    pods: tuple[Object, ...] = ()
    autoscalers: tuple[str, ...] = ()
    other_queue: str = ""

    @property
    def name(self) -> str:
        """Its name."""
        return str(self.body["metadata"]["name"])

    @property
    def replicas(self) -> int:
        """Replicas asked for."""
        return int(self.body["spec"].get("replicas", 1))


@dataclass(frozen=True, slots=True)
class Observed:
    """Everything that a plan is made from.

    ``owner``: how this Queue signs the topology (cluster, namespace, name, uid). ``target``: the Deployment that
    spec.workers.scaleTargetRef names. ``settled``: the topology with which this process has made all partitions
    agree last. ``applied``: by kind, the resourceVersion of an object of the workers and the hash of what
    was applied when that changed nothing. ``companions``: what is there beside the Deployment under the same name, by
    kind (None: not looked at this time). ``fingerprint``: of objects, of Redis at a glance, and of the rest; equal for
    two passes that have seen the same, the time apart (None: cannot be told); and where the next ones look.
    ``namespace_ends``: the namespace is being deleted, and ``leaving``: the worker Pods that are there; both are looked
    up only while the Queue is being deleted. ``scaling``: what is told of the scaling by load. ``drift``: what was put
    right last since this process began.
    """

    queue: QueueObject
    versions: tuple[QueueVersionObject, ...]
    backend: Backend | ConnectionProblem
    workers: WorkersObject | None
    owner: Mapping[str, str]
    now: datetime
    target: WorkersObject | None = None
    settled: Topology | None = None
    applied: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    companions: Mapping[str, Object] | None = field(default_factory=dict)
    fingerprint: tuple[Hashable, Hashable, Hashable, Spot] | None = field(default=None, compare=False)
    namespace_ends: bool = False
    leaving: tuple[Object, ...] = ()
    scaling: ScalingReport = field(default_factory=ScalingReport)
    drift: Drift | None = None

    @property
    def is_ours(self) -> bool:
        """Whether what Redis holds of the queue, if anything, belongs to this Queue."""
        if not isinstance(self.backend, Backend):
            return False
        return self.backend.topology is None or dict(self.backend.topology.owner) == dict(self.owner)

    @property
    def scaled(self) -> WorkersObject | None:
        """The Deployment whose replicas run the workers; None if there is none."""
        if self.queue.spec is not None and self.queue.spec.scale_target is not None:
            return self.target
        return self.workers if self.workers is not None and self.workers.ownership == "ours" else None


@dataclass(frozen=True, slots=True)
class Case:
    """What was seen of a Queue with a valid spec and a connection that works."""

    seen: Observed
    spec: QueueSpec
    backend: Backend

    @property
    def queue(self) -> QueueObject:
        """The Queue."""
        return self.seen.queue

    @property
    def now(self) -> datetime:
        """The time of the pass, in whole seconds as the API keeps it."""
        return self.seen.now.replace(microsecond=0)


def ownership(body: Object, queue_name: str, queue_uid: str) -> Ownership:
    """Say whose the object ``body`` is, seen from the Queue with that metadata.name and uid."""
    metadata = body["metadata"]
    references = metadata.get("ownerReferences", [])
    for reference in references:
        if reference["kind"] == QUEUE_KIND and reference["apiVersion"].partition("/")[0] == GROUP:
            if reference["uid"] == queue_uid:
                return "ours"
            if reference["name"] == queue_name:
                return "dying"
    labels = metadata.get("labels", {})
    if references or labels.get(MANAGED_BY_LABEL) != OPERATOR or labels.get(QUEUE_LABEL) != queue_name:
        return "foreign"
    return "ours" if metadata.get("annotations", {}).get(OWNER_UID) == queue_uid else "orphan"
