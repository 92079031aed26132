"""What one process knows of one lock, and what follows from it. No I/O and no clock: every method is told the time."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from headrace.election.record import RankedLock, Record, Version, holder_of, identity_of, next_seq
from headrace.election.timings import LONGEST_FAILBACK, Timings

Found = tuple[Version, Record] | None


@dataclass(slots=True)
class Hold:
    """A term of ours in a lock. ``renewed_at``: clock before the sending of the last write known to have landed."""

    nonce: str
    holder: str
    term: int
    acquired: int
    version: Version
    seq: int
    renewed_at: float
    valid_until: float


@dataclass(slots=True)
class Bid:
    """A takeover on its way."""

    nonce: str
    holder: str
    term: int
    acquired: int


class Lane:
    """One lock of the chain as this process sees it.

    ``doubt``: the outcome of a write is unknown, so the next call is a read. ``leaving``: what is held is being freed,
    and backs no claim any more, whether or not that arrived. ``not_before``: no call earlier, after a failure.
    ``poll_at``: when a look is due.
    """

    def __init__(self, place: RankedLock, timings: Timings, identity: str) -> None:
        self.place = place
        self.timings = timings
        self.identity = identity
        self.version: Version | None = None
        self.record: Record | None = None
        self.observed_at = -math.inf
        self.known = False
        self.gone_until = -math.inf
        self.hold: Hold | None = None
        self.bid: Bid | None = None
        self.bump: int | None = None
        self.doubt = self.leaving = False
        self.not_before = self.poll_at = self.claim_at = -math.inf
        self.forbidden = False
        self.good_since: float | None = None
        self._contested = False
        self._sent: dict[int, float] = {}
        self._seq = 0
        self._entered_at = self._answered_at = -math.inf
        self._failing = False
        self._write_failing_since: float | None = None
        self._falls: list[float] = []

    # ---- what others do -------------------------------------------------------------------------------------------

    def saw(self, found: Found, now: float) -> None:
        """Take in the answer of a read that came at ``now``, and settle with it what was in doubt."""
        version, record = found or (None, None)
        if not self.known or version != self.version:
            # Whoever held a record that vanished may not know it yet: waited out as if it had just renewed.
            if record is None and self.record is not None:
                self._wait_out(now, self.record.duration)
            self.version, self.record, self.observed_at = version, record, self.observation(record, now)
        elif record is None and self._contested:
            # Somebody made one after our last look, and it vanished before this one.
            self._wait_out(now, 0)
        self.known, self._contested = True, False
        if (mine := self.bid or self.hold) is not None:
            self._settle(mine, version, record)
        self.doubt = False

    def _wait_out(self, now: float, duration: float) -> None:
        self.gone_until = now + max(duration, self.timings.lease_duration)

    def contradicted(self) -> None:
        """A write was refused: the record is not what we knew. The next call reads it."""
        self.doubt = True
        self._contested = self.version is None

    def observation(self, record: Record | None, now: float) -> float:
        """Return the time from which the silence of a new record counts: its arrival here, whatever it says itself."""
        return now

    def free_at(self) -> float:
        """Return the time from which the lock may be taken; minus infinity: it is free; infinity: not known yet."""
        if not self.known:
            return math.inf
        if self.record is None:
            return self.gone_until
        if self._free(self.record):
            return -math.inf
        return self.observed_at + self.record.duration

    def _free(self, record: Record) -> bool:
        return record.holder == "" or identity_of(record.holder) == self.identity

    # ---- what we hold ---------------------------------------------------------------------------------------------

    def takeover(self, nonce: str, wall: int) -> Record:
        """Return the record that takes the lock under a new nonce."""
        term = (self.record.term if self.record else 0) + 1
        seq = self._next(wall)
        self.bid = Bid(nonce, holder_of(self.identity, nonce), term, seq)
        return Record(self.bid.holder, term, self.timings.lease_duration, seq, seq)

    def renewal(self, hold: Hold, wall: int, epoch: int) -> Record:
        """Return the record that renews what we hold, under a higher term if one was asked for."""
        term = hold.term if self.bump is None else self.bump
        return Record(hold.holder, term, self.timings.lease_duration, self._next(wall), hold.acquired, epoch)

    def farewell(self, hold: Hold, wall: int) -> Record:
        """Return the record that frees the lock. A second is the shortest duration that the Kubernetes API takes."""
        return Record("", hold.term, 1, self._next(wall), 0)

    def sending(self, seq: int, now: float) -> None:
        """Note the time before a write is sent."""
        self._sent[seq] = now

    def unsent(self, record: Record) -> None:
        """A write certainly was not applied."""
        self._sent.pop(record.seq or 0, None)
        if self.hold is None:
            self.bid = None

    def expects(self, record: Record) -> bool:
        """Whether the write of ``record`` is still ours to take in."""
        return record.seq in self._sent and (self.hold is not None or self.bid is not None)

    def landed(self, version: Version, record: Record, now: float) -> None:
        """A write of ours was applied; the answer came at ``now``. The lane must expect it."""
        sent_at = self._sent[record.seq or 0]
        held = self.bid or self.hold
        if held is None:
            return
        self.hold = Hold(
            held.nonce, held.holder, record.term, held.acquired, version, record.seq or 0,
            sent_at, self.validity(sent_at, now),
        )  # fmt: skip
        self.version, self.record, self.observed_at, self.known = version, record, now, True
        self.bid = None
        self.bump = None if self.bump is not None and record.term >= self.bump else self.bump
        self._sent = {seq: at for seq, at in self._sent.items() if seq > self.hold.seq}

    def validity(self, sent_at: float, now: float) -> float:
        """Return the time until which a renewal counts: from before its sending, when nobody can have seen it."""
        return sent_at + self.timings.renew_deadline

    def freed(self, version: Version, record: Record, now: float) -> None:
        """Our farewell was applied."""
        self.drop()
        self.version, self.record, self.observed_at = version, record, now

    def drop(self) -> None:
        """Forget what we hold here; the record may still bear our name for a while."""
        self.hold = self.bid = self.bump = None
        self.doubt = self.leaving = False
        self._sent.clear()

    def _settle(self, mine: Bid | Hold, version: Version | None, record: Record | None) -> None:
        if version is None or record is None or record.holder != mine.holder:
            self.drop()
        elif record.seq in self._sent:
            self.landed(version, record, self.observed_at)
        elif self.hold is not None and record.seq == self.hold.seq:
            self.hold.version = version  # somebody else changed what is not ours, such as a label
        else:
            self.drop()

    def _next(self, wall: int) -> int:
        known = self.record.seq if self.record is not None and self.record.seq is not None else 0
        # Another's time is no bound for ours: its clock may be years ahead.
        mine = known if self.record is not None and identity_of(self.record.holder) == self.identity else 0
        self._seq = next_seq(wall, max(self._seq, mine))
        return self._seq

    # ---- whether it can be reached --------------------------------------------------------------------------------

    def enter(self, now: float) -> None:
        """Begin to use this lock."""
        self._entered_at = now
        self._failing, self._write_failing_since = False, None
        self.forbidden = False
        self.poll_at = now

    def answered(self, now: float, *, write: bool) -> None:
        """Note a definitive answer."""
        self._answered_at = now
        self._failing = False
        self.forbidden = False
        if write:
            self._write_failing_since = None
        if self.good_since is None:
            self.good_since = now

    def failed(self, sent_at: float, *, write: bool) -> None:
        """Note a call, sent at ``sent_at``, that got no definitive answer."""
        self._failing = True
        self.good_since = None
        if write and self._write_failing_since is None:
            self._write_failing_since = sent_at

    def refused(self) -> None:
        """Note that the backend is forbidden to us."""
        self.forbidden = True
        self.good_since = None

    def down(self, now: float, *, fresh: float) -> bool:
        """Whether the next lock should be tried; ``fresh``: limit while it never answered since it was entered."""
        if self.forbidden:
            return True
        limit = self.timings.fallback_after
        if self._write_failing_since is not None and now - self._write_failing_since >= limit:
            return True
        limit = limit if self._answered_at >= self._entered_at else fresh
        return self._failing and now - max(self._answered_at, self._entered_at) >= limit

    def fell(self, now: float) -> None:
        """Note that it was given up for a lower one."""
        self._falls = [at for at in self._falls if now - at < LONGEST_FAILBACK] + [now]
        self.good_since = None

    def stable(self, now: float, *, leading: bool) -> bool:
        """Whether a process that uses a lower lock should come back: longer after every fall within ten minutes."""
        if self.good_since is None:
            return False
        falls = sum(now - at < LONGEST_FAILBACK for at in self._falls)
        doublings = falls - 1
        if not self.place.hold_down:
            if falls <= 1:
                # The leader goes first, so that nobody takes the lock that it comes back for.
                return leading or now - self.good_since >= 2 * self.timings.probe_period
            doublings -= 1
        base = self.timings.failback_after if leading else self.timings.failback_after_others
        wait: float = min(base * 2 ** max(0, doublings), LONGEST_FAILBACK)
        return now - self.good_since >= wait


LaneFactory = Callable[[RankedLock, Timings, str], Lane]
