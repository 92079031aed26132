"""The steps that a plan is made of: values, run by `headrace_operator.apply`.

Each is safe to repeat, and safe to be the last one before the operator dies: the next plan starts from what is there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from headrace.settings import QueueSettings
from headrace.topology import Topology
from headrace_operator.api.queue_version import QueueVersionStatus
from headrace_operator.reasons import Event


@dataclass(frozen=True, slots=True)
class Step:
    """One step. ``event`` is told about the Queue once the step is done.

    ``drift``: it puts right what somebody else has changed. ``harmless``: done because of an old look at the Queue, it
    costs nothing but another step.
    """

    harmless: ClassVar[bool] = False
    event: Event | None = field(default=None, kw_only=True)
    drift: bool = field(default=False, kw_only=True, compare=False)


@dataclass(frozen=True, slots=True)
class WriteMarker(Step):
    """Mark the Redis data set, unless it is marked; ``marker`` None: with a new mark."""

    harmless = True
    marker: str | None


@dataclass(frozen=True, slots=True)
class RestoreTopology(Step):
    """Write ``topology`` over the one that was ``read`` (None: there is none), and make the partitions agree."""

    read: Topology | None
    topology: Topology


@dataclass(frozen=True, slots=True)
class Configure(Step):
    """Write settings and owner into the topology and its partitions."""

    settings: QueueSettings
    owner: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Settle(Step):
    """Make every partition agree with the topology: finishes what somebody left."""

    harmless = True
    topology: Topology


@dataclass(frozen=True, slots=True)
class Provision(Step):
    """Create the partitions of a version that is going to be promoted over ``current``."""

    harmless = True
    current: Topology | None
    version: int
    partitions: int


@dataclass(frozen=True, slots=True)
class Discard(Step):
    """Remove the partitions of a version that was never promoted."""

    version: int
    partitions: int


@dataclass(frozen=True, slots=True)
class Promote(Step):
    """Make the version active; the others drain."""

    version: int
    partitions: int
    settings: QueueSettings
    owner: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class CloseDrained(Step):
    """Close the empty partitions of a draining version."""

    harmless = True
    topology: Topology
    version: int


@dataclass(frozen=True, slots=True)
class BuryWaiting(Step):
    """Make dead letters of the jobs that wait in a version whose drain has timed out."""

    topology: Topology
    version: int


@dataclass(frozen=True, slots=True)
class Complete(Step):
    """Prove that a version is drained, and remove it."""

    version: int


@dataclass(frozen=True, slots=True)
class CreateQueueVersion(Step):
    """Create the QueueVersion of a version."""

    harmless = True
    version: int
    partitions: int


@dataclass(frozen=True, slots=True)
class AdoptQueueVersion(Step):
    """Become the owner of a QueueVersion that has none."""

    harmless = True
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class ReportQueueVersion(Step):
    """Write the status of a QueueVersion."""

    harmless = True
    name: str
    status: QueueVersionStatus


@dataclass(frozen=True, slots=True)
class DeleteQueueVersion(Step):
    """Delete a QueueVersion."""

    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class CreateWorkers(Step):
    """Create the worker Deployment, with 0 replicas and nothing but them owned by the scaler."""

    harmless = True
    body: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ClaimName(Step):
    """Create an object of the workers with nothing but what says whose it is; it is applied next.

    Applying alone would take over an object that somebody else has made under the name a moment ago.
    """

    harmless = True
    body: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ApplyObject(Step):
    """Apply an object of the workers, a Deployment without replicas, over the one with ``uid``.

    ``resource_version``: that of the one that was seen.
    """

    body: Mapping[str, Any]
    uid: str
    resource_version: str

    @property
    def kind(self) -> str:
        """Kind of the object."""
        return str(self.body["kind"])


@dataclass(frozen=True, slots=True)
class ReleaseWorkers(Step):
    """Leave the scaler, which created the Deployment, as owner of its replicas only.

    Else a field that is later removed from what is applied would stay, as the scaler's.
    """

    harmless = True
    name: str
    managed_fields: tuple[Mapping[str, Any], ...]
    resource_version: str


@dataclass(frozen=True, slots=True)
class Scale(Step):
    """Set the replicas of the Deployment that runs the workers, if it is still as ``found``."""

    harmless = True
    found: Mapping[str, Any]
    replicas: int

    @property
    def name(self) -> str:
        """Name of the Deployment."""
        return str(self.found["metadata"]["name"])

    @property
    def resource_version(self) -> str:
        """Version of the Deployment, for the API server."""
        return str(self.found["metadata"]["resourceVersion"])


@dataclass(frozen=True, slots=True)
class Disown(Step):
    """Take the ownerReferences from an object of the workers, if it is still at ``resource_version``.

    Applying it without them would leave those that it was created with.
    """

    kind: str
    name: str
    resource_version: str


@dataclass(frozen=True, slots=True)
class DeleteObject(Step):
    """Delete the object of the workers with ``uid``."""

    kind: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class SetFinalizers(Step):
    """Let the Queue, if it is still at ``resource_version``, have these finalizers.

    ``unlist``: take its queue off the list of all queues in Redis before, unless that has a topology. No step of its
    own, which would be the first one again whenever the operator dies after it.
    """

    harmless = True
    finalizers: tuple[str, ...]
    resource_version: str
    unlist: bool = False


@dataclass(frozen=True, slots=True)
class RemoveQueue(Step):
    """Remove everything that Redis holds of the queue with ``topology``, if its owner is still the same.

    ``with_jobs``: also if there are jobs or dead letters in it.
    """

    topology: Topology
    with_jobs: bool
