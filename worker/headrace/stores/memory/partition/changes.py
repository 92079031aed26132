"""What changed on a job in memory since it was enqueued."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from headrace.envelope import pack_changes, unpack_changes


@dataclass(slots=True)
class Changes:
    """The facts of `headrace.envelope` that change; kept only for jobs to which something happened."""

    attempt: int = 0
    expiries: int = 0
    last_error: str = ""
    history: deque[tuple[str, int, str, str]] = field(default_factory=deque)
    crashes: int = 0
    suspicion: int = 0
    """0 none, 1 suspect (its lease was lost), 2 to be run alone (lost again)."""
    progress: tuple[float, str, int] | None = None

    def note(self, status: str, now: int, token: bytes, error: str, entries: int) -> None:
        """Append an event to the history, of which the newest ``entries`` are kept."""
        worker, _, _ = token.decode(errors="replace").rpartition(":")
        self.history.append((status, now, worker, error))
        while len(self.history) > entries:
            self.history.popleft()
        self.last_error = error or self.last_error

    @staticmethod
    def unpacked(packed: bytes) -> Changes:
        """Return the facts of a stored form."""
        (attempt, expiries, last_error, _, crashes, suspicion, *reported), history = unpack_changes(packed)
        progress = tuple(reported[0]) if reported else None
        return Changes(attempt, expiries, last_error, deque(map(tuple, history)), crashes, suspicion, progress)

    def packed(self) -> bytes:
        """Return the stored form."""
        facts = [
            self.attempt, self.expiries, self.last_error, len(self.history), self.crashes, self.suspicion,
        ]  # fmt: skip
        if self.progress is not None:
            facts.append(self.progress)
        return pack_changes(facts, self.history)
