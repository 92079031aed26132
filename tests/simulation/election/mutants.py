"""Electors and fences with one rule removed each: the properties must notice every one of them."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

from headrace.election.calls import Call
from headrace.election.campaign import Campaign
from headrace.election.elector import Elector
from headrace.election.errors import LockError, Unavailable
from headrace.election.fence import Answer, Claim, Token
from headrace.election.lane import Bid, Hold, Lane
from headrace.election.memory_fence import FenceState
from headrace.election.record import Record, Version
from tests.simulation.election.faults import Fault, Plan, draw
from tests.simulation.election.run import FenceType
from tests.simulation.election.stores import SimLock


class NoCheck(FenceState):
    """Every write is let pass."""

    def admits(self, token: Token) -> bool:
        return True


class AtLeast(FenceState):
    """A token counts if its epoch is not older, whatever its nonce."""

    def admits(self, token: Token) -> bool:
        return token.epoch >= self.epoch


class NoHighest(FenceState):
    """The highest term that was claimed is not remembered."""

    def claim(self, claim: Claim, ttl: int) -> Answer:
        self.high.clear()
        return super().claim(claim, ttl)


class ObservedFromRecord(Lane):
    """The silence of a record counts from the time that it names, as if all wall clocks agreed."""

    def observation(self, record: Record | None, now: float) -> float:
        if record is None or record.seq is None:
            return now
        return now - (cast(SimLock, self.place.lock).link.loop.wall() - record.seq) / 1e6


class ValidFromReply(Lane):
    """A renewal counts from the time of its answer."""

    def validity(self, sent_at: float, now: float) -> float:
        return now + self.timings.renew_deadline


class NoTombstone(Lane):
    """A record that vanished may be made anew at once."""

    def free_at(self) -> float:
        return -math.inf if self.known and self.record is None else super().free_at()


class FreshVersion(Lane):
    """After a conflict the takeover is repeated on whatever version is there."""

    beaten = False

    def _settle(self, mine: Bid | Hold, version: Version | None, record: Record | None) -> None:
        super()._settle(mine, version, record)
        self.beaten = isinstance(mine, Bid) and self.hold is None

    def free_at(self) -> float:
        return -math.inf if self.beaten else super().free_at()


class Hasty(Elector):
    """The lock is freed before the work has ended."""

    async def _drained(self, campaign: Campaign) -> bool:
        await asyncio.sleep(0)
        return True


class Trusting(Campaign):
    """A renewal that is not answered is taken for one that landed."""

    def _end_lock_badly(self, lane: Lane, call: Call, error: LockError, now: float) -> None:
        super()._end_lock_badly(lane, call, error, now)
        if isinstance(error, Unavailable) and lane.hold is not None:
            lane.hold.valid_until = lane.validity(call.sent_at, now)
            self._refresh_seat()


def with_lane(lane: type[Lane]) -> type[Elector]:
    return type(f"{lane.__name__}Elector", (Elector,), {"lane_factory": lane})


def with_campaign(campaign: type[Campaign]) -> type[Elector]:
    return type(f"{campaign.__name__}Elector", (Elector,), {"campaign_factory": campaign})


def paused(seed: int) -> Plan:
    """Every pod sleeps for longer than a term, one after the other."""
    sleeps = tuple(Fault("pause", 20 + 12 * n, pod=n, seconds=25) for n in range(4))
    return Plan(seed, sleeps, seconds=170, calm=70)


def forgetful(seed: int) -> Plan:
    """Failovers that forget follow soon on changes of the leader."""
    faults = []
    for n in range(4):
        faults += [Fault("pause", 20 + 25 * n, pod=pod, seconds=17) for pod in range(4) if pod != (seed + n) % 4]
        faults += [Fault("forget", 37.5 + 25 * n + 0.2 * k, steps=3 + seed % 4) for k in range(8)]
    return Plan(seed, tuple(faults), seconds=230, calm=70, slow=0.05)


def deleted(seed: int) -> Plan:
    """The Lease vanishes now and then, under leaders that cannot know."""
    faults = tuple(Fault("delete", 20.3 + 20 * n + seed * 0.37 % 2, store="lease") for n in range(5))
    return Plan(seed, faults, seconds=200, calm=70, slow=0, loss=0)


def slow(seed: int) -> Plan:
    """Answers take long, clocks differ as much as they may, and the pods with slow and fast ones are cut in turn."""
    faults = tuple(
        Fault("cut", 20 + 25 * n, pod=pod, store="lease", seconds=24)
        for n in range(12)
        for pod in range(4)
        if pod % 2 != n % 2
    )
    return Plan(seed, faults, seconds=390, calm=70, drift=0.19, slow=0.35, slowest=3.0, extreme=True)


def cut(seed: int) -> Plan:
    """The only lock is out of reach of each pod in turn."""
    faults = tuple(Fault("cut", 20 + 35 * n, pod=n, store="lease", seconds=30) for n in range(4))
    return Plan(seed, faults, seconds=230, calm=70)


def torn(seed: int) -> Plan:
    """Only a store that is not atomic can be reached, and its holders are ended now and then."""
    faults = [Fault("outage", 0, store="lease", seconds=100)]
    faults += [Fault("terminate", 15 + 20 * n, pod=n, seconds=1) for n in range(4)]
    return Plan(seed, tuple(faults), seconds=230, calm=70, torn=True)


def stubborn(seed: int) -> Plan:
    """Work takes its time to end when the process is asked to."""
    faults = tuple(Fault("terminate", 20 + 15 * n, pod=n, seconds=2) for n in range(4))
    return Plan(seed, faults, seconds=160, calm=70, stubborn=0.8)


@dataclass(frozen=True)
class Mutant:
    """What is changed, the runs that show it, and how a violation begins that it leads to."""

    expected: str
    plan: Callable[[int], Plan]
    elector_type: type[Elector] = Elector
    fence_type: FenceType = FenceState
    chain: tuple[str, ...] = ("lease", "mongo", "redis")


MUTANTS = {
    "fence check removed": Mutant("S1", paused, fence_type=NoCheck),
    ">= for =": Mutant("S1", forgetful, fence_type=AtLeast),
    "highest term dropped": Mutant("S2", torn, fence_type=NoHighest),
    "observed from the record's time": Mutant("S4", draw, with_lane(ObservedFromRecord)),
    "valid from the reply": Mutant("S4", slow, with_lane(ValidFromReply), chain=("lease",)),
    "no tombstone": Mutant("S4", deleted, with_lane(NoTombstone), chain=("lease",)),
    "retry with a fresh version": Mutant("S4", draw, with_lane(FreshVersion)),
    "release before the work ended": Mutant("frees", stubborn, Hasty),
    "success on time-out": Mutant("S4", cut, with_campaign(Trusting), chain=("lease",)),
}
"""The nine rules that the design rests on."""
