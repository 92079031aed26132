"""Calls that are due, and what their answers mean: from following a lock to a seat, and moving it between locks."""

from __future__ import annotations

import asyncio
import functools
import logging
import math
from collections.abc import Awaitable, Callable, Sequence
from typing import cast

from headrace.election.calls import Call, answer_of
from headrace.election.chain import Chain
from headrace.election.errors import Conflict, Forbidden, LockError, Unavailable
from headrace.election.fence import Accepted, Answer, Claim, Fence, FenceView, Held, Stale, Token
from headrace.election.handover import free_lock
from headrace.election.lane import Found, Hold, Lane
from headrace.election.record import Record
from headrace.election.states import Seat
from headrace.election.surroundings import Surroundings

log = logging.getLogger("headrace.election")

HINT_SPREAD = 0.15
"""Candidates that hear of a free lock look at it within so many seconds."""
LOG_INTERVAL = 60.0


class Campaign:
    """All lanes and the fence of one `run`. One event loop; only its owner calls it, and answers wait in an inbox.

    ``seat``: the right to lead, gone only by `give_up_seat`. ``refused``: the fence has refused the seat's token;
    ``overtaken``: so it has, but the answer to a claim of ours may bring the next one.
    ``closed``: no seat is taken. ``nonces``: claimed, not known to be released. ``rest_until``: no takeover earlier.
    """

    def __init__(self, lanes: Sequence[Lane], fence: Fence, around: Surroundings) -> None:
        self.chain = Chain(lanes, around.timings)
        self.seat: Seat | None = None
        self.seat_lane: Lane | None = None
        self.refused = False
        self.rest_until = -math.inf
        self.changed = asyncio.Event()
        self.inbox: list[Callable[[], None]] = []
        self.overtaken: Token | None = None
        self.held_by_other = False
        self.closed = False
        self.nonces: set[str] = set()
        self._fence = fence
        self._around = around
        self._timings = around.timings
        self._calls: dict[Lane | None, Call] = {}
        self._fence_at = self._beat_at = -math.inf
        self._looked_at = self._ruled_until = -math.inf
        self._ruling_rank = 0
        self._above = 0
        self._fence_failing_since: float | None = None
        self._fence_wanted = False
        self._logged: dict[str, float] = {}
        self.chain.current.enter(around.clock())

    # ---- what is due ----------------------------------------------------------------------------------------------

    def advance(self, now: float) -> float:
        """Start every call that is due at ``now``; return the time at which to look again."""
        for lane in self.chain.lanes:
            # Whether the seat goes on is for its owner to judge.
            if lane.hold is not None and lane is not self.seat_lane and now >= lane.hold.valid_until:
                lane.drop()
        backing = self.seat_lane.hold if self.seat_lane is not None else None
        self.chain.move(now, leading=backing)
        self._fence_wanted = False
        soonest = min(self._drive(index, now) for index in range(len(self.chain.lanes)))
        soonest = min(soonest, self._drive_fence(now))
        if backing is not None:
            soonest = min(soonest, backing.valid_until)
            if (fallback := backing.renewed_at + self._timings.fallback_after) > now:
                soonest = min(soonest, fallback)
        if self._fence_failing_since is not None and (lost := self._fence_lost_at()) > now:
            soonest = min(soonest, lost)
        return soonest

    def _drive(self, index: int, now: float) -> float:
        """Start the call that is due at one lock; return when the next one is, infinity if an answer comes first."""
        lane = self.chain.lanes[index]
        if lane in self._calls:
            return math.inf
        wanted = self.chain.wanted(index)
        # A process without Redis must not block the queue.
        keep = wanted and not lane.leaving and (self.seat is not None or not self.fence_lost(now))
        if lane.hold is not None and not keep:
            due, step = lane.not_before, self._start_release
        elif lane.doubt or (wanted and not lane.known):
            due, step = lane.not_before, self._start_read
        elif lane.hold is not None:
            # A higher term is written at once, a renewal in its time.
            due = lane.hold.renewed_at + self._timings.retry_period if lane.bump is None else now
            due, step = max(due, lane.not_before), functools.partial(self._start_renewal, hold=lane.hold)
        elif wanted:
            return self._drive_candidate(lane, now)
        elif self.chain.probed(index):
            due, step = max(lane.poll_at, lane.not_before), self._start_read
        else:
            return math.inf
        if due > now:
            return due
        step(lane, now)
        return math.inf

    def _drive_candidate(self, lane: Lane, now: float) -> float:
        free = max(lane.free_at(), lane.not_before, self.rest_until)
        look = max(lane.poll_at, lane.not_before)
        # Taken only by one that the fence answers: a leader's beats say so, others ask.
        stale_at = self._looked_at + self._timings.retry_period
        if self.seat is not None:
            answered, pointless = self._fence_failing_since is None, False
        else:
            # While a higher rank leads it could not claim, but would be in that leader's way down.
            answered, pointless = now <= stale_at, self._ruling_rank > lane.place.rank and now < self._ruled_until
        if free <= now and answered and not pointless:
            self._start_takeover(lane, now)
            return math.inf
        self._fence_wanted |= free <= now and not answered
        if look <= now:
            self._start_read(lane, now)
            return math.inf
        if free > now:
            return min(free, look)
        return min(stale_at + 1e-3, look) if answered else look

    def _drive_fence(self, now: float) -> float:
        if None in self._calls:
            return math.inf
        if (found := self._claimable(now)) is not None:
            lane, hold = found
            claim_at = max(lane.claim_at, self._fence_at)
            if claim_at <= now:
                self._start_claim(lane, hold, now)
                return math.inf
        else:
            claim_at = math.inf
        if (seat := self.seat) is not None:
            due = max(self._beat_at, self._fence_at)
            if due <= now:
                call = functools.partial(self._fence.beat, seat.token, self._timings.fence_ttl)
                self._start(None, Call("beat", now, subject=seat.token.nonce), call)
                return math.inf
            return min(due, claim_at)
        if self._fence_wanted:
            if self._fence_at <= now:
                self._start(None, Call("look", now), self._fence.read)
                return math.inf
            return min(self._fence_at, claim_at)
        return claim_at

    def _claimable(self, now: float) -> tuple[Lane, Hold] | None:
        """Return the highest lock that we hold and lead not through yet."""
        for index, lane in enumerate(self.chain.lanes):
            hold = lane.hold
            if hold is None or now >= hold.valid_until or lane.leaving or lane is self.seat_lane:
                continue
            if lane.bump is None and self.chain.wanted(index):
                return lane, hold
        return None

    # ---- calls ----------------------------------------------------------------------------------------------------

    def _start_read(self, lane: Lane, now: float) -> None:
        self._start(lane, Call("read", now), lane.place.lock.read)

    def _start_takeover(self, lane: Lane, now: float) -> None:
        nonce = f"{self._around.rng.getrandbits(64):016x}"
        self._start_write(lane, lane.takeover(nonce, self._around.wall()), now)

    def _start_renewal(self, lane: Lane, now: float, hold: Hold) -> None:
        epoch = self.seat.token.epoch if self.seat is not None and lane is self.seat_lane else 0
        self._start_write(lane, lane.renewal(hold, self._around.wall(), epoch), now)

    def _start_write(self, lane: Lane, record: Record, now: float) -> None:
        lane.sending(record.seq or 0, now)
        lock = lane.place.lock
        if lane.version is None:
            call = functools.partial(lock.create, record)
        else:
            call = functools.partial(lock.cas, lane.version, record)
        self._start(lane, Call("write", now, record), call)

    def _start_release(self, lane: Lane, now: float) -> None:
        async def release(timeout: float) -> None:
            await free_lock(lane, self._around, now + timeout)

        lane.leaving = True
        self._start(lane, Call("release", now), release)

    def _start_claim(self, lane: Lane, hold: Hold, now: float) -> None:
        self.nonces.add(hold.nonce)
        place = lane.place
        claim = Claim(self._around.identity, hold.nonce, place.name, place.rank, hold.term, self._above)
        call = functools.partial(self._fence.claim, claim, self._timings.fence_ttl)
        self._start(None, Call("claim", now, subject=hold.nonce), call)

    def _start(self, lane: Lane | None, call: Call, run: Callable[[float], Awaitable[object]]) -> None:
        timeout = self._timings.call_timeout
        if lane is not None and lane.hold is not None and call.kind != "release":
            # The last try of a term must end before the term does.
            timeout = min(timeout, max(0.001, lane.hold.valid_until - call.sent_at))
        what = f"{call.kind} at {lane.place.name if lane is not None else 'the fence'}"
        self._calls[lane] = call
        call.task = asyncio.create_task(self._await(lane, call, answer_of(run, timeout, what)))

    async def _await(self, lane: Lane | None, call: Call, answer: Awaitable[object]) -> None:
        result = await answer
        self.inbox.append(functools.partial(self._end, lane, call, result))
        self.changed.set()

    # ---- answers --------------------------------------------------------------------------------------------------

    def take_in(self) -> None:
        """Apply every answer that has come."""
        while self.inbox:
            inbox, self.inbox = self.inbox, []
            for step in inbox:
                step()

    def _end(self, lane: Lane | None, call: Call, result: object) -> None:
        if self._calls.get(lane) is not call:
            return
        del self._calls[lane]
        now = self._around.clock()
        if lane is None:
            self._end_fence(call, result, now)
            if (overtaken := self.overtaken) is not None:
                self.overtaken = None
                self.refuse(overtaken)  # without effect if the claim was accepted
        elif call.kind != "release":
            self._end_lock(lane, call, result, now)
        elif isinstance(result, LockError):  # cut short: any step of it may have been applied
            lane.doubt = lane.hold is not None
            lane.not_before = now + self._timings.pause

    def _end_lock(self, lane: Lane, call: Call, result: object, now: float) -> None:
        record = call.record
        if isinstance(result, LockError):
            self._end_lock_badly(lane, call, result, now)
        elif record is None:
            lane.answered(now, write=False)
            lane.saw(cast(Found, result), now)
            lane.poll_at = now + self._poll_interval(lane)
        else:
            lane.answered(now, write=True)
            if lane.expects(record):
                lane.landed(result, record, now)
                self._renewed(lane, call, now)
            else:
                lane.poll_at = now  # given up while it was under way; what stands there now bears our name
        self._refresh_seat()

    def _end_lock_badly(self, lane: Lane, call: Call, error: LockError, now: float) -> None:
        record, write = call.record, call.record is not None
        if isinstance(error, Conflict):
            lane.answered(now, write=write)
            lane.contradicted()
            return
        pause = self._timings.pause
        if isinstance(error, Forbidden):
            lane.refused()
            self._log(lane.place.name, logging.ERROR, "%s", error)
            pause = self._timings.probe_period
            ambiguous = False
        else:
            lane.failed(call.sent_at, write=write)
            self._log(lane.place.name, logging.WARNING, "%s", error)
            ambiguous = not isinstance(error, Unavailable) or error.ambiguous
            if isinstance(error, Unavailable) and error.retry_after is not None:
                pause = max(pause, min(error.retry_after, self._timings.retry_period))
        if record is not None and ambiguous:
            lane.doubt = True
        elif record is not None:
            lane.unsent(record)
        lane.not_before = now + pause

    def _poll_interval(self, lane: Lane) -> float:
        index = self.chain.lanes.index(lane)
        period = self._timings.retry_period if self.chain.wanted(index) else self._timings.probe_period
        return period * self._around.rng.uniform(1, 1.2)

    def _renewed(self, lane: Lane, call: Call, now: float) -> None:
        if lane is self.seat_lane and lane.hold is not None:
            self._around.metrics.renewed(lane.place.name, now - call.sent_at, lane.hold.valid_until - now)

    def _refresh_seat(self) -> None:
        """Let the seat be as valid as the hold behind it; one that is lost is left to run out, or to its owner."""
        seat, hold = self.seat, self.seat_lane.hold if self.seat_lane is not None else None
        if seat is not None and hold is not None and hold.valid_until != seat.valid_until:
            self.seat = Seat(seat.token, seat.backend, seat.rank, hold.valid_until)

    def _end_fence(self, call: Call, result: object, now: float) -> None:
        if isinstance(result, LockError):
            self._log("fence", logging.WARNING, "%s", result)
            if self._fence_failing_since is None:
                self._fence_failing_since = call.sent_at
            self._fence_at = now + self._timings.pause
            return
        self._fence_failing_since = None
        if isinstance(result, FenceView):
            mine = result.holder == self._around.identity
            self._looked_at, self._ruling_rank = now, 0 if mine else result.rank
            self._ruled_until = now + result.seconds
        if call.kind == "claim":
            self._end_claim(call, cast(Answer, result), now)
        elif call.kind == "beat" and self.seat is not None and self.seat.token.nonce == call.subject:
            self._beat_at = now + self._timings.fence_ttl / 3
            if not result:
                self.refuse(self.seat.token)

    def _end_claim(self, call: Call, answer: Answer, now: float) -> None:
        lane = next((each for each in self.chain.lanes if each.hold and each.hold.nonce == call.subject), None)
        if self.closed or lane is None or lane.hold is None or lane.leaving or now >= lane.hold.valid_until:
            return
        self.held_by_other = isinstance(answer, Held)
        match answer:
            case Accepted(epoch):
                self._take_seat(lane, lane.hold, epoch, now)
            case Stale(high):
                lane.bump = high + 1
            case Held():
                self.nonces.discard(lane.hold.nonce)
                lane.claim_at = now + self._timings.retry_period

    def _take_seat(self, lane: Lane, hold: Hold, epoch: int, now: float) -> None:
        token = Token(epoch, hold.nonce)
        moved = self.chain.arrived(self.chain.lanes.index(lane), now)
        self.nonces = {token.nonce}
        self.seat = Seat(token, lane.place.name, lane.place.rank, hold.valid_until)
        self.seat_lane = lane
        self.refused = False
        self._beat_at = now + self._timings.fence_ttl / 3
        metrics = self._around.metrics
        metrics.seated(self.seat)
        if moved < 0:
            metrics.fell_back(lane.place.name)
        elif moved > 0:
            metrics.failed_back(lane.place.name)
        log.debug("leading through %s as epoch %d", lane.place.name, token.epoch)

    def refuse(self, token: Token, newer: int = 0) -> None:
        """The fence has refused ``token``: if it is the seat's, the seat is void. ``newer``: an epoch that was seen.

        While a claim of ours is on its way, that may be what overtook it: then nothing is void yet, and no token shown.
        """
        self._above = max(self._above, newer)
        call = self._calls.get(None)
        if self.seat is None or self.seat.token != token or self.refused:
            return
        if call is not None and call.kind == "claim":
            self.overtaken = token
            return
        self.refused = True
        self._around.metrics.fenced()

    def look_soon(self) -> None:
        """A lock may be free."""
        lane = self.chain.current
        lane.poll_at = min(lane.poll_at, self._around.clock() + self._around.rng.uniform(0, HINT_SPREAD))

    def fence_lost(self, now: float) -> bool:
        """Whether Redis has been silent for so long that holding a lock serves nobody."""
        return self._fence_failing_since is not None and now >= self._fence_lost_at()

    def _fence_lost_at(self) -> float:
        since = self._fence_failing_since
        return math.inf if since is None else since + self._timings.renew_deadline / 2

    # ---- giving up ------------------------------------------------------------------------------------------------

    def give_up_seat(self) -> None:
        """Lead no more, from now on, whatever answers are still on their way. What is held stays held."""
        self.seat = self.seat_lane = None
        self.refused = False
        self.overtaken = None
        self.closed = True
        self.chain.aim = None

    def reopen(self, rest: float) -> None:
        """Campaign again, after ``rest`` seconds."""
        self.closed = False
        self.rest_until = self._around.clock() + rest

    async def settle(self, until: float) -> None:
        """Wait for the calls under way, at the longest until the clock says ``until``, and apply their answers."""
        tasks = [call.task for call in self._calls.values() if call.task is not None]
        if tasks:
            await asyncio.wait(tasks, timeout=max(0.0, until - self._around.clock()))
        self.take_in()
        for lane, call in list(self._calls.items()):
            if call.task is not None:
                call.task.cancel()
            del self._calls[lane]
            if lane is not None and call.kind in ("write", "release"):
                lane.doubt = True
        # The next call must not meet one that is only about to end.
        await asyncio.gather(*tasks, return_exceptions=True)

    async def close(self) -> None:
        """Cancel what is under way."""
        tasks = [call.task for call in self._calls.values() if call.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def acquiring(self) -> bool:
        """Whether a takeover is on its way."""
        return any(lane.bid is not None for lane in self.chain.lanes)

    def _log(self, key: str, level: int, text: str, *args: object) -> None:
        """Log at most one line a minute per lock."""
        now = self._around.clock()
        if now - self._logged.get(key, -math.inf) >= LOG_INTERVAL:
            self._logged[key] = now
            log.log(level, text, *args)
