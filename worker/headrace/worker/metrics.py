"""What a worker tells about itself: counts per batch, never per job."""

from __future__ import annotations

from typing import Literal, Protocol

Outcome = Literal["succeeded", "retried", "dead", "snoozed", "parked", "interrupted", "handed_back"]


class Metrics(Protocol):
    """Receives counts; called in the worker's event loop, so an implementation must not wait."""

    def claimed(self, queue: str, jobs: int) -> None:
        """Count a claim and the jobs it brought."""
        ...

    def settled(self, queue: str, outcome: Outcome, jobs: int) -> None:
        """Count jobs whose outcome the store has confirmed."""
        ...

    def leases_lost(self, queue: str, jobs: int) -> None:
        """Count jobs whose lease was lost: a renewal or a result was refused. Each run counts once."""
        ...

    def store_unavailable(self) -> None:
        """Count a call that the store did not answer."""
        ...


class NoMetrics:
    """Counts nothing: the default."""

    def claimed(self, queue: str, jobs: int) -> None:
        """Do nothing."""

    def settled(self, queue: str, outcome: Outcome, jobs: int) -> None:
        """Do nothing."""

    def leases_lost(self, queue: str, jobs: int) -> None:
        """Do nothing."""

    def store_unavailable(self) -> None:
        """Do nothing."""
