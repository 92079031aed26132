"""Which of several Queues that name one Deployment scales it: the one that did so first.

Each of them asks for as many workers as its own load wants; two of them would undo each other's work for ever.
"""

from __future__ import annotations

from collections.abc import Iterable

from headrace_operator.api.names import MANAGED_BY_LABEL, OPERATOR, QUEUE_LABEL
from headrace_operator.observed import Object, QueueObject


def other_scaler(mine: QueueObject, deployment: Object, queues: Iterable[QueueObject]) -> str:
    """Return the name of the Queue that goes before ``mine`` in scaling a Deployment; "" if none does.

    That is the one whose workers it is; else the one whose status says that it scales it; else the oldest.
    ``queues``: those of the namespace, with or without ``mine``.
    """
    metadata = deployment["metadata"]
    labels = metadata.get("labels", {})
    if labels.get(MANAGED_BY_LABEL) == OPERATOR and labels.get(QUEUE_LABEL, mine.name) != mine.name:
        return str(labels[QUEUE_LABEL])
    name = str(metadata["name"])
    others = (queue for queue in queues if queue.namespace == mine.namespace and queue.name != mine.name)
    rivals = [queue for queue in others if _scales(queue, name)]
    first = min([mine, *rivals], key=lambda queue: (queue.status.scale_target != name, queue.created, queue.name))
    return "" if first is mine else first.name


def _scales(queue: QueueObject, deployment: str) -> bool:
    spec = queue.spec
    return spec is not None and spec.scale_target == deployment and spec.scaling.mode != "Disabled"
