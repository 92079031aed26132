"""What an elector tells about itself."""

from __future__ import annotations

from typing import Protocol

from headrace.election.states import Reason, Seat, State


class Metrics(Protocol):
    """Receives changes; called in the elector's thread, so an implementation must not wait."""

    def entered(self, state: State) -> None:
        """Note a change of state."""
        ...

    def seated(self, seat: Seat) -> None:
        """Note a new right to lead: backend, rank, epoch, and until when it is valid."""
        ...

    def renewed(self, backend: str, seconds: float, valid_for: float) -> None:
        """Note a renewal: how long it took, and for how long the seat is valid now."""
        ...

    def ended(self, reason: Reason) -> None:
        """Count the end of a term."""
        ...

    def fenced(self) -> None:
        """Count a refused token."""
        ...

    def fell_back(self, backend: str) -> None:
        """Count a change to a backend of lower rank."""
        ...

    def failed_back(self, backend: str) -> None:
        """Count a change to a backend of higher rank."""
        ...


class NoMetrics:
    """Counts nothing: the default."""

    def entered(self, state: State) -> None:
        """Do nothing."""

    def seated(self, seat: Seat) -> None:
        """Do nothing."""

    def renewed(self, backend: str, seconds: float, valid_for: float) -> None:
        """Do nothing."""

    def ended(self, reason: Reason) -> None:
        """Do nothing."""

    def fenced(self) -> None:
        """Do nothing."""

    def fell_back(self, backend: str) -> None:
        """Do nothing."""

    def failed_back(self, backend: str) -> None:
        """Do nothing."""
