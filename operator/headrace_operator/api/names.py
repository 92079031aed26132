"""Names that the operator gives or reads: API group, labels, annotations, owned objects."""

from __future__ import annotations

from typing import NamedTuple

GROUP = "headrace.dev"
API_VERSION = "v1alpha1"
GROUP_VERSION = f"{GROUP}/{API_VERSION}"
QUEUE_KIND = "Queue"
QUEUE_VERSION_KIND = "QueueVersion"

QUEUE_LABEL = f"{GROUP}/queue"
"""On every object made for a Queue; the value is the Queue's metadata.name."""
MANAGED_BY_LABEL = "app.kubernetes.io/managed-by"
OPERATOR = "headrace-operator"
"""Field manager of everything but replicas, and value of the managed-by label."""
SCALER = "headrace-scaler"
"""Field manager of replicas only, so that applying a Deployment again never resets them."""

PROMOTE = f"{GROUP}/promote"
"""Annotation on a Queue with promotion Manual: the version that may be promoted."""
ACK_DATA_LOSS = f"{GROUP}/ack-data-loss"
"""Annotation on a Queue: clears the condition DataLoss. Its value is the topology epoch of the loss that was seen."""
TAKE_OVER = f"{GROUP}/take-over"
"""Annotation on a Queue: the uid of the owner, in another cluster, that gives the queue up."""
ACCEPT_BACKEND = f"{GROUP}/accept-new-backend"
"""Annotation on a Queue: the mark of the Redis data set that may replace the one used before, or ``empty``."""
CONFIRM_DELETE = f"{GROUP}/confirm-delete"
"""Annotation on a Queue with deletionPolicy Delete: its own uid, by which its jobs may be deleted."""
FORCE_DELETE = f"{GROUP}/force-delete"
"""Annotation on a Queue: ``true`` lets a deletion end at once; what is in Redis stays there."""
FINALIZER = f"{GROUP}/deletion"
"""On a Queue whose deletion has to wait for something in Redis: with deletionPolicy Drain or Delete."""
OWNER_UID = f"{GROUP}/queue-uid"
"""Annotation on what was made for the workers of a Queue: its uid, also where no ownerReference names it."""
RENDERER = f"{GROUP}/renderer"
"""Annotation on a worker Deployment: the version of the renderer that made its pod template."""
RENDERED_FROM = f"{GROUP}/rendered-from"
"""Annotation on a worker Deployment: hash of the part of the spec that its pod template was made from."""
RENDERED = f"{GROUP}/rendered"
"""Annotation on a worker Deployment: hash of what was applied."""
GRACE = f"{GROUP}/grace-seconds"
"""Annotation on a worker Deployment: the grace that was derived from the queue's longest run for its Pods."""

EMPTY_BACKEND = "empty"


class QueueKey(NamedTuple):
    """Names one Queue object."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


def queue_version_name(queue: str, version: int) -> str:
    """Return the name of the QueueVersion of one version of the Queue named ``queue``."""
    return f"{queue}-v{version}"


def workers_name(queue: str) -> str:
    """Return the name of the worker Deployment, and of its ServiceAccount, of the Queue named ``queue``."""
    return f"{queue}-workers"
