"""What is told of a job to those who ask or wait for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal

from headrace.envelope import decode_result

State = Literal["scheduled", "ready", "leased", "retry_wait", "parked", "dead", "succeeded", "unknown"]
TERMINAL: Final = frozenset({"dead", "succeeded", "unknown"})


@dataclass(frozen=True, slots=True)
class JobStatus:
    """Where a job is.

    ``state``: "parked": no worker knows its type; "unknown": it never was there, or ended so long ago that nothing is
    kept of it. ``version`` and ``partition``: where it was found. ``at`` (ms of server time): until when it waits or is
    leased, or when it ended. ``worker``: the one that runs it, or ran it last, "" if there is none. Of one that ended
    also ``type``, ``attempt`` (runs that failed before the end; of a dead one, all of them) and ``error`` (of a dead
    one).
    """

    id: str
    state: State
    version: int | None = None
    partition: int | None = None
    at: int | None = None
    worker: str = ""
    type: str | None = None
    attempt: int | None = None
    error: str = ""
    packed_result: bytes = b""

    @property
    def ended(self) -> bool:
        """Whether it will not change any more: dead, succeeded or unknown."""
        return self.state in TERMINAL

    @property
    def result(self) -> Any:
        """What its handler returned, None if it returned nothing or has not succeeded. Raises ResultNotKept."""
        return decode_result(self.packed_result)
