"""What this process remembers of each Queue between passes. All of it may be lost at any time."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from datetime import datetime

from headrace.topology import Topology
from headrace_operator.api.queue_status import Drift, Leader
from headrace_operator.observed import Spot
from headrace_operator.reasons import Finding
from headrace_operator.steps import Step


@dataclass(slots=True)
class Quiet:
    """What was seen of a Queue, as fingerprints; ``until`` then, seeing the same means that there is nothing to do.

    ``spot``: where to look. ``glanced``: the last look went no further than to a glance at Redis.
    """

    objects: Hashable
    glance: Hashable
    rest: Hashable
    spot: Spot
    until: datetime
    glanced: bool = False


@dataclass(slots=True)
class QueueMemory:
    """Facts about one Queue, by its uid.

    ``settled``: the topology with which all partitions were last made to agree. ``applied``: by the kind of an
    object of the workers, its resourceVersion and what was applied when that changed nothing. ``measured_at``: clock of
    the last status write that carried measurements. ``failures``: passes in a row that failed. ``refused``: a step that
    the API server has refused for good, its finding, and the clock until which it is not sent again. ``companions_at``:
    when what is made beside the workers is looked at first. ``fallen_back``: epoch of the leader by another lock than
    the Lease when that was looked at last. ``quiet``: what was seen when there was nothing to do and nothing to tell.
    ``told_version``: resourceVersion of a Queue whose status needed no write. ``leader``: who was told last to lead the
    workers, at the clock ``leader_told_at``. ``drift``: what was put right last.
    """

    settled: Topology | None = None
    applied: dict[str, tuple[str, str]] = field(default_factory=dict)
    measured_at: float = float("-inf")
    failures: int = 0
    companions_at: datetime | None = None
    fallen_back: int | None = None
    quiet: Quiet | None = None
    told_version: str = ""
    leader: Leader | None = None
    leader_told_at: float = float("-inf")
    refused: tuple[Step, Finding, float] | None = None
    drift: Drift | None = None


class Memory:
    """The facts of all Queues."""

    def __init__(self) -> None:
        self._queues: dict[str, QueueMemory] = {}

    def of(self, uid: str) -> QueueMemory:
        """Return what is remembered of the Queue with ``uid``, new if nothing is."""
        return self._queues.setdefault(uid, QueueMemory())

    def forget(self, uid: str) -> None:
        """Forget a Queue that is gone."""
        self._queues.pop(uid, None)
