"""The elector: one coroutine that owns all state, campaigns, leads, hands over, and campaigns again."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable, Sequence

from headrace.election.campaign import Campaign
from headrace.election.fence import Fence, Token
from headrace.election.handover import announce, free_fence, free_lock
from headrace.election.lane import Lane, LaneFactory
from headrace.election.metrics import Metrics, NoMetrics
from headrace.election.record import RankedLock, identity_of, make_identity
from headrace.election.states import Reason, Seat, State, Status, is_leading
from headrace.election.surroundings import Surroundings, suspend_aware_clock, wall_microseconds
from headrace.election.tenure import Callbacks, Tenure, Term
from headrace.election.timings import STANDARD, Timings

log = logging.getLogger("headrace.election")

DRAIN_SECONDS = 1.0
"""Time that cancelled work gets before the fence is released under it."""
HANDOVER_SECONDS = 2.0
"""Time for releasing fence and locks, after which they are left to run out."""


class Elector:
    """Campaigns for one leadership over a chain of locks and one fence, until stopped.

    ``locks``: at least one, highest rank first. ``callbacks`` run on the event loop ``application`` (None: the one of
    `run`). ``identity``: unique per process; None: `make_identity`. ``on_wedged``: called in the elector's thread when
    work ignores its cancellation for ``lease_duration - renew_deadline``. ``clock``, ``wall``, ``rng``: for tests.

    `run` may be called again when it has ended. All other methods may be called from any thread.
    """

    lane_factory: LaneFactory = Lane
    campaign_factory: type[Campaign] = Campaign

    def __init__(
        self,
        locks: Sequence[RankedLock],
        fence: Fence,
        callbacks: Callbacks,
        timings: Timings = STANDARD,
        *,
        identity: str | None = None,
        application: asyncio.AbstractEventLoop | None = None,
        clock: Callable[[], float] = suspend_aware_clock,
        wall: Callable[[], int] = wall_microseconds,
        rng: random.Random | None = None,
        metrics: Metrics | None = None,
        on_wedged: Callable[[], None] | None = None,
    ) -> None:
        self.identity = identity or make_identity()
        self._locks = tuple(locks)
        self._fence = fence
        self._callbacks = callbacks
        self._timings = timings
        self._application = application
        self._clock = clock
        self._metrics = metrics or NoMetrics()
        self._around = Surroundings(self.identity, timings, clock, wall, rng or random.SystemRandom(), self._metrics)
        self._on_wedged = on_wedged
        self._loop: asyncio.AbstractEventLoop | None = None
        self._campaign: Campaign | None = None
        self._tenure: Tenure | None = None
        self._tenure_ended = asyncio.Event()
        self._stopping = False
        self._wedged = False
        self._state = State.STOPPED
        self._leader = ""

    # ---- for any thread -------------------------------------------------------------------------------------------

    def is_leader(self) -> bool:
        """Return whether this process may act as leader now. A stalled elector loses the right by itself."""
        return self.token() is not None

    def token(self) -> Token | None:
        """Return what leader scripts show to the fence; None: this process does not lead."""
        campaign = self._campaign
        if campaign is None or campaign.refused or campaign.overtaken is not None:
            return None
        seat = campaign.seat
        return seat.token if seat is not None and is_leading(seat, self._clock()) else None

    def healthy(self) -> bool:
        """Return whether nothing is wedged. Followers are healthy, and readiness never depends on leading."""
        return not self._wedged

    def status(self) -> Status:
        """Return where this process stands."""
        campaign = self._campaign
        seat = campaign.seat if campaign is not None else None
        if seat is not None:
            backend, epoch, left = seat.backend, seat.token.epoch, max(0.0, seat.valid_until - self._clock())
        else:
            backend, epoch, left = campaign.chain.current.place.name if campaign is not None else "", 0, 0.0
        return Status(self._state, self.identity, backend, epoch, left, self._leader, self._wedged)

    def stop(self) -> None:
        """Resign if leading, free what is held, and let `run` end. On SIGTERM, call it before anything else.

        Without a `run` under way the next one ends at once.
        """
        self._stopping = True
        self._post(lambda: None)

    def hint(self) -> None:
        """Look at the lock soon: it may be free."""
        campaign = self._campaign
        if campaign is not None:
            self._post(campaign.look_soon)

    def fenced(self, token: Token, newer: int = 0) -> None:
        """Report that a leader script with ``token`` was refused, by somebody who knows of the epoch ``newer``.

        The term ends, unless that token is not in use any more; the next one has an epoch above ``newer``.
        """
        campaign = self._campaign
        if campaign is not None:
            self._post(lambda: campaign.refuse(token, newer))

    def _post(self, step: Callable[[], None]) -> None:
        loop, campaign = self._loop, self._campaign
        if loop is None or campaign is None:
            return

        def accept() -> None:
            campaign.inbox.append(step)
            campaign.changed.set()

        with contextlib.suppress(RuntimeError):  # the loop has ended: nobody is left to tell
            loop.call_soon_threadsafe(accept)

    # ---- the owner ------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Campaign, lead, campaign again, until `stop`. Cancelling it is like a crash: nothing is released."""
        self._loop = asyncio.get_running_loop()
        self._wedged = False
        lanes = [self.lane_factory(place, self._timings, self.identity) for place in self._locks]
        campaign = self._campaign = self.campaign_factory(lanes, self._fence, self._around)
        self._tenure = None
        self._enter(State.FOLLOWING)
        listener = asyncio.create_task(self._listen(campaign))
        try:
            while self._goes_on():
                until = campaign.advance(self._clock())
                self._enter(self._state_of(campaign))
                await self._wait(campaign, until)
                self._tell_leader(campaign)
                if campaign.seat is not None and self._tenure is None:
                    self._begin(campaign, campaign.seat)
                if (reason := self._must_leave(campaign, self._clock())) is not None:
                    await self._leave(campaign, reason)
            await self._leave(campaign, Reason.TERMINATED)
        finally:
            self._abandon(campaign)
            listener.cancel()
            await asyncio.gather(listener, campaign.close(), return_exceptions=True)
            self._enter(State.STOPPED)
            self._loop = self._campaign = None
            self._stopping = False

    async def close(self) -> None:
        """Close the connections of locks and fence, when `run` has ended for good."""
        closings = [place.lock.close() for place in self._locks]
        for error in await asyncio.gather(*closings, self._fence.close(), return_exceptions=True):
            if isinstance(error, Exception):
                log.warning("closing a connection failed: %s", type(error).__name__)

    def _goes_on(self) -> bool:
        return not self._stopping

    async def _listen(self, campaign: Campaign) -> None:
        async for _ in self._fence.announcements():
            campaign.look_soon()
            campaign.changed.set()

    async def _wait(self, campaign: Campaign, until: float) -> None:
        """Sleep until the clock says so or something came in, and take that in."""
        # A clock that runs on while timers stand still is looked at once an hour at the latest.
        seconds = max(0.0, min(until - self._clock(), 3600.0))
        timer = asyncio.get_running_loop().call_later(seconds, campaign.changed.set)
        try:
            await campaign.changed.wait()
        finally:
            timer.cancel()
        campaign.changed.clear()
        campaign.take_in()

    def _must_leave(self, campaign: Campaign, now: float) -> Reason | None:
        """Return why the term has to end, None if it may go on."""
        seat, tenure = campaign.seat, self._tenure
        if seat is None or tenure is None:
            return None
        if (tenure.done or tenure.gave_up) and tenure.reason is not None:
            return tenure.reason
        if campaign.refused:
            return Reason.FENCED
        if campaign.seat_lane is None or campaign.seat_lane.hold is None:
            return Reason.LOST
        if not is_leading(seat, now):
            return Reason.EXPIRED
        return Reason.REDIS_LOST if campaign.fence_lost(now) else None

    def _begin(self, campaign: Campaign, seat: Seat) -> None:
        loop = asyncio.get_running_loop()
        ended = self._tenure_ended = asyncio.Event()

        def finished() -> None:
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(wake)

        def wake() -> None:
            ended.set()
            campaign.changed.set()

        def term(give_up: Callable[[], None]) -> Term:
            return Term(self.identity, seat.backend, seat.token.epoch, self.token, give_up)

        def nudge() -> None:
            self._post(lambda: None)

        self._tenure = Tenure(term, self._callbacks, self._application or loop, finished, nudge)
        self._tenure.start()
        self._enter(State.LEADING)

    async def _leave(self, campaign: Campaign, reason: Reason) -> None:
        """End the term in the order that keeps others out until the work has ended: work, fence, locks."""
        campaign.give_up_seat()
        tenure, self._tenure = self._tenure, None
        ended = True
        if tenure is not None:
            self._enter(State.STEPPING_DOWN)
            self._metrics.ended(reason)
            log.debug("stepping down: %s", reason)
            tenure.end(reason)
            ended = await self._drained(campaign)
        # Whatever does not answer must not use up the time of what does.
        begun = self._clock()
        until = begun + HANDOVER_SECONDS
        await campaign.settle(begun + HANDOVER_SECONDS / 4)
        await free_fence(self._fence, campaign.nonces, self._around, begun + HANDOVER_SECONDS / 2)
        for lane in campaign.chain.lanes:
            # Work that could not be stopped may have effects that no fence sees: its lock runs out by itself.
            if ended:
                await free_lock(lane, self._around, until)
            else:
                lane.drop()
        if tenure is not None and ended:
            await announce(self._fence, self._around, until)
        campaign.reopen(self._timings.retry_period)

    def _abandon(self, campaign: Campaign) -> None:
        """End the work of an elector that ends out of turn; nothing is left to do after an orderly end."""
        campaign.give_up_seat()
        if self._tenure is not None:
            self._tenure.end(Reason.TERMINATED)

    async def _drained(self, campaign: Campaign) -> bool:
        """Wait for cancelled work; False if it goes on although this process has to end."""
        if await self._tenure_within(DRAIN_SECONDS):
            return True
        await free_fence(self._fence, campaign.nonces, self._around, self._clock() + HANDOVER_SECONDS)
        patience = self._timings.lease_duration - self._timings.renew_deadline
        if await self._tenure_within(max(0.0, patience - DRAIN_SECONDS)):
            return True
        self._wedged = True
        log.error("the work of the leader ignores its cancellation for %.1f s; its scripts are fenced", patience)
        if self._on_wedged is not None:
            self._on_wedged()
        while not self._stopping:
            if await self._tenure_within(self._timings.retry_period):
                self._wedged = False
                return True
        return False

    async def _tenure_within(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await self._tenure_ended.wait()
        except TimeoutError:
            return False
        return True

    # ---- what is told ---------------------------------------------------------------------------------------------

    def _state_of(self, campaign: Campaign) -> State:
        if self._tenure is not None:
            return State.LEADING
        if any(lane.hold is not None for lane in campaign.chain.lanes):
            return State.STANDBY if campaign.held_by_other else State.CLAIMING
        return State.ACQUIRING if campaign.acquiring() else State.FOLLOWING

    def _enter(self, state: State) -> None:
        if state is not self._state:
            self._state = state
            self._metrics.entered(state)

    def _tell_leader(self, campaign: Campaign) -> None:
        record = campaign.chain.current.record
        leader = self.identity if campaign.seat is not None else identity_of(record.holder) if record else ""
        if leader and leader != self._leader:
            loop = self._application or asyncio.get_running_loop()
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(self._callbacks.on_new_leader, leader)
        self._leader = leader
