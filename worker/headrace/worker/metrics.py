"""What a worker tells about itself: once per batch, never per job."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, runtime_checkable

if TYPE_CHECKING:
    from headrace.schedules import Fate
    from headrace.stores.base import Statistics
    from headrace.worker.leases import Execution

Outcome = Literal["succeeded", "retried", "dead", "snoozed", "parked", "interrupted", "handed_back"]


class Leading(NamedTuple):
    """How a worker leads a queue; all 0: it does not. ``rank``: of its lock, 3 for lease, 2 for mongo, else 1."""

    epoch: int = 0
    rank: int = 0
    valid_seconds: float = 0.0


class Readings(NamedTuple):
    """State of a worker now.

    ``cycle_age``: seconds since its claim loop last did what it should. ``leading``: whether it leads each of its
    queues. ``clock_ahead``: seconds by which this machine's clock is ahead of the store's, None before the first claim.
    ``memory_ratio``: used part of the store's memory, None without a limit.
    """

    slots: int
    busy: int
    cycle_age: float
    leading: Mapping[str, Leading] = MappingProxyType({})
    clock_ahead: float | None = None
    memory_ratio: float | None = None


class Metrics(Protocol):
    """Receives counts; called in the worker's event loop, so an implementation must not wait.

    `NoMetrics` has all methods, for implementations that want a few. The runs that are handed over have ``job``,
    ``seconds`` and ``start_delay``, see `headrace.worker.leases.Execution`; do not keep them.
    """

    def started(self, read: Callable[[], Readings | None]) -> None:
        """Take a function that reads the worker's state, from any thread; it returns None once the worker has ended."""
        ...

    def claimed(self, queue: str, runs: Collection[Execution]) -> None:
        """Count the jobs that a claim brought."""
        ...

    def settled(self, queue: str, outcome: Outcome, runs: Sequence[Execution]) -> None:
        """Count jobs whose outcome the store has confirmed."""
        ...

    def leases_lost(self, queue: str, jobs: int) -> None:
        """Count jobs whose lease was lost: a renewal or a result was refused. Each run counts once."""
        ...

    def leases_expired(self, queue: str, jobs: int) -> None:
        """Count jobs that a claim of this worker took back because their lease had ended, whoever held it."""
        ...

    def poisoned(self, queue: str, jobs: int) -> None:
        """Count jobs that are dead because their worker was lost once too often; told by the worker that found out."""
        ...

    def acks_refused(self, queue: str, jobs: int) -> None:
        """Count, of the jobs whose lease was lost, those that had finished: their result was refused."""
        ...

    def store_called(self, call: str, seconds: float) -> None:
        """Take the time of an answered call of the store: ``claim``, ``ack``, ``fail``, ``release`` or ``park``."""
        ...

    def store_unavailable(self) -> None:
        """Count a call that the store did not answer."""
        ...

    def leadership_renewed(self, queue: str, backend: str, seconds: float) -> None:
        """Take the time of a renewal of the lock that this worker leads with. Called in the elector's thread."""
        ...

    def leader_moved(self, queue: str, direction: Literal["down", "up"]) -> None:
        """Count a change of this leader to another lock of its chain. Called in the elector's thread."""
        ...

    def leader_fenced(self, queue: str) -> None:
        """Count a token of this worker that the fence refused: another one leads. Called in the elector's thread."""
        ...

    def term_ended(self, queue: str, reason: str) -> None:
        """Count the end of a term of this worker as leader. Called in the elector's thread."""
        ...

    def duty_ran(self, queue: str, duty: str, seconds: float, *, failed: bool) -> None:
        """Count one run of a duty of this worker as leader, and how long it took."""
        ...

    def schedule_fired(self, queue: str, schedule: str, outcome: Fate, times: int) -> None:
        """Count times of a schedule: a job was enqueued, there was one already, or none is made up for.

        Failed: a try that an error ended.
        """
        ...

    def audited(self, queue: str, partitions: int, leftovers: int) -> None:
        """Count partitions that this worker looked through as leader, and what no step leaves behind."""
        ...

    def surveyed(self, queue: str, statistics: Statistics) -> None:
        """Take what this worker has measured of a queue as its leader."""
        ...


@runtime_checkable
class Rendered(Protocol):
    """Metrics that the health server can show at ``/metrics``."""

    def render(self) -> tuple[str, bytes]:
        """Return content type and body; called in another thread than everything else."""
        ...


class NoMetrics:
    """Counts nothing: the default, and a base for implementations."""

    def started(self, read: Callable[[], Readings | None]) -> None:
        """Do nothing."""

    def claimed(self, queue: str, runs: Collection[Execution]) -> None:
        """Do nothing."""

    def settled(self, queue: str, outcome: Outcome, runs: Sequence[Execution]) -> None:
        """Do nothing."""

    def leases_lost(self, queue: str, jobs: int) -> None:
        """Do nothing."""

    def leases_expired(self, queue: str, jobs: int) -> None:
        """Do nothing."""

    def poisoned(self, queue: str, jobs: int) -> None:
        """Do nothing."""

    def acks_refused(self, queue: str, jobs: int) -> None:
        """Do nothing."""

    def store_called(self, call: str, seconds: float) -> None:
        """Do nothing."""

    def store_unavailable(self) -> None:
        """Do nothing."""

    def leadership_renewed(self, queue: str, backend: str, seconds: float) -> None:
        """Do nothing."""

    def leader_moved(self, queue: str, direction: Literal["down", "up"]) -> None:
        """Do nothing."""

    def leader_fenced(self, queue: str) -> None:
        """Do nothing."""

    def term_ended(self, queue: str, reason: str) -> None:
        """Do nothing."""

    def duty_ran(self, queue: str, duty: str, seconds: float, *, failed: bool) -> None:
        """Do nothing."""

    def schedule_fired(self, queue: str, schedule: str, outcome: Fate, times: int) -> None:
        """Do nothing."""

    def audited(self, queue: str, partitions: int, leftovers: int) -> None:
        """Do nothing."""

    def surveyed(self, queue: str, statistics: Statistics) -> None:
        """Do nothing."""
