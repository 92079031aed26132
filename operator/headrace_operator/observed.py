"""What one pass over a Queue has seen, as values. `headrace_operator.plan` decides from them and from nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from pydantic import ValidationError

from headrace.stores.base import Counts
from headrace.topology import Topology
from headrace_operator.api.names import GROUP, MANAGED_BY_LABEL, OPERATOR, QUEUE_KIND
from headrace_operator.api.queue_spec import QueueSpec
from headrace_operator.api.queue_status import QueueStatus
from headrace_operator.api.queue_version import QueueVersionSpec, QueueVersionStatus
from headrace_operator.reasons import Finding

Ownership = Literal["ours", "dying", "orphan", "foreign"]
"""Of an object with a name that we would give: owned by this Queue; by an earlier Queue of the same name (it will be
collected); by nobody but made by us; somebody else's."""

Object = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class QueueObject:
    """A Queue as read from the API server. ``spec`` is None if it cannot be understood; ``problem`` says why."""

    namespace: str
    name: str
    uid: str
    generation: int
    resource_version: str
    annotations: Mapping[str, str]
    deleting: bool
    spec: QueueSpec | None
    problem: str
    status: QueueStatus

    @property
    def queue_name(self) -> str:
        """Name of the queue in Redis."""
        return (self.spec.queue_name if self.spec else None) or self.name

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
            "deletionTimestamp" in metadata,
            spec,
            problem,
            status,
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
class Backend:
    """The Redis of the queue, read within one pass. ``counts``: by version, then by partition number.

    ``parked``: jobs whose type no worker knew, by version, then by type; of some partitions only if it is many.
    ``owner_alive``: whether the Queue that the topology names as its owner exists (None: not looked up).
    ``secret``: name and key of the Secret that the URL comes from, None if ``url`` may be shown.
    """

    endpoint: str
    marker: str | None
    topology: Topology | None
    counts: Mapping[int, Mapping[int, Counts]] = field(default_factory=dict)
    parked: Mapping[int, Mapping[str, int]] = field(default_factory=dict)
    owner_alive: bool | None = None
    secret: tuple[str, str] | None = None
    url: str | None = None


@dataclass(frozen=True, slots=True)
class ConnectionProblem:
    """Why the Redis of the queue cannot be used now. ``stalled``: trying again will not help."""

    finding: Finding
    stalled: bool = False


@dataclass(frozen=True, slots=True)
class WorkersObject:
    """The Deployment with the name of the queue's workers; its Pods only if they had to be looked at."""

    body: Object
    ownership: Ownership
    pods: tuple[Object, ...] = ()

    @property
    def replicas(self) -> int:
        """Replicas asked for."""
        return int(self.body["spec"].get("replicas", 1))


@dataclass(frozen=True, slots=True)
class Observed:
    """Everything that a plan is made from.

    ``owner``: how this Queue signs the topology (cluster, namespace, name, uid). ``settled_epoch``: the epoch up to
    which this process has made all partitions agree with the topology. ``applied``: resourceVersion of the Deployment
    after which applying the same again changed nothing. ``has_account``: whether there is the ServiceAccount that the
    workers get.
    """

    queue: QueueObject
    versions: tuple[QueueVersionObject, ...]
    backend: Backend | ConnectionProblem
    workers: WorkersObject | None
    owner: Mapping[str, str]
    now: datetime
    settled_epoch: int | None = None
    applied: str | None = None
    has_account: bool = True


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
    if references:
        return "foreign"
    return "orphan" if metadata.get("labels", {}).get(MANAGED_BY_LABEL) == OPERATOR else "foreign"
