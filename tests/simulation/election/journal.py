"""What happened in a run, and the properties that must hold of it."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field

from headrace.election.fence import Claim, Token
from headrace.election.states import Seat
from tests.simulation.election.world import World

LINES = 400


class Violation(AssertionError):
    """A property does not hold."""


@dataclass
class Office:
    """What is known of one process."""

    seat: Seat | None = None
    until: float = -math.inf
    backend: str = ""  # of the seat, or of the last one
    working: bool = False
    started: int = 0
    stopped: int = 0
    dropped: set[str] = field(default_factory=set)


class Journal:
    """Checks while the run goes on. ``single``: whether one holder per backend can be expected (S4)."""

    def __init__(self, world: World, *, single: bool) -> None:
        self._world = world
        self._single = single
        self.offices: dict[str, Office] = {}
        self.lines: deque[tuple[float, tuple[object, ...]]] = deque(maxlen=LINES)
        self.violations: list[str] = []
        self.writes = 0
        self.last_write = 0.0
        self.longest_gap = 0.0
        self.refused = 0
        self.reasons: list[str] = []
        self._highest = 0
        self._ruler: dict[int, tuple[str, str]] = {}
        self._terms: dict[str, int] = {}

    def note(self, *what: object) -> None:
        self.lines.append((self._world.now, what))

    def violated(self, text: str) -> None:
        self.note("VIOLATION", text)
        self.violations.append(f"{self._world.now:.3f} {text}")

    def text(self) -> str:
        return "\n".join(f"{time:9.3f} {' '.join(map(str, what))}" for time, what in self.lines)

    def office(self, pod: str) -> Office:
        return self.offices.setdefault(pod, Office())

    # ---- S1, S2: whose writes count -------------------------------------------------------------------------------

    def accepted(self, pod: str, token: Token) -> None:
        self.writes += 1
        self.longest_gap = max(self.longest_gap, self._world.now - self.last_write)
        self.last_write = self._world.now
        if token.epoch < self._highest:
            self.violated(f"S1: {pod} wrote as epoch {token.epoch} after one of {self._highest}")
        self._highest = max(self._highest, token.epoch)
        ruler = self._ruler.setdefault(token.epoch, (pod, token.nonce))
        if ruler != (pod, token.nonce):
            self.violated(f"S1: {pod} and {ruler[0]} both wrote as epoch {token.epoch}")

    def forgot(self) -> None:
        """A failover forgot the newest steps: what was written by them is gone as well."""
        self.note("failover forgets")
        self._highest = 0
        self._ruler.clear()
        self._terms.clear()

    def claimed(self, claim: Claim) -> None:
        """A claim was accepted under a new epoch."""
        if claim.term <= self._terms.get(claim.backend, 0):
            self.violated(f"S2: {claim.holder} claims {claim.backend} term {claim.term}, which ruled already")
        self._terms[claim.backend] = max(claim.term, self._terms.get(claim.backend, 0))

    def sends(self, pod: str, token: Token) -> None:
        office = self.office(pod)
        if not office.working:
            self.violated(f"{pod} sends a write after its end")
        if token.nonce in office.dropped:
            self.violated(f"S2: {pod} uses {token} again after it was fenced")

    def learns(self, pod: str, token: Token) -> None:
        self.refused += 1
        self.office(pod).dropped.add(token.nonce)

    # ---- S4: one holder at a time ---------------------------------------------------------------------------------

    def seated(self, pod: str, seat: Seat | None, until: float) -> None:
        """The seat of ``pod`` changed; it is valid ``until`` in the world's time."""
        office = self.office(pod)
        if seat is not None and (office.seat is None or seat.token != office.seat.token):
            self.note(pod, "leads through", seat.backend, "epoch", seat.token.epoch)
        office.seat, office.until = seat, until
        office.backend = office.backend if seat is None else seat.backend
        if seat is None or not self._single or until <= self._world.now:
            return
        for name, other in self.offices.items():
            same = other.seat is not None and other.seat.backend == seat.backend
            if name != pod and same and self._world.now < other.until:
                self.violated(f"S4: {pod} and {name} both lead through {seat.backend}")

    # ---- callbacks ------------------------------------------------------------------------------------------------

    def starts(self, pod: str) -> None:
        office = self.office(pod)
        self.note(pod, "starts work")
        if office.working:
            self.violated(f"{pod} starts twice")
        office.working = True
        office.started += 1

    def stops(self, pod: str, reason: str) -> None:
        office = self.office(pod)
        self.note(pod, "stopped:", reason)
        self.reasons.append(reason)
        office.working = False
        office.stopped += 1
        if office.stopped != office.started:
            self.violated(f"{pod}: {office.started} starts, {office.stopped} stops")

    def frees(self, pod: str, lock: str) -> None:
        self.note(pod, "frees", lock)
        office = self.office(pod)
        # Another lock than the seat's may be given up while the work goes on.
        if office.working and office.backend == lock:
            self.violated(f"{pod} frees {lock} before its work has ended")
