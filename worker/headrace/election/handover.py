"""Freeing the fence and locks, within a bound: what cannot be freed runs out by itself."""

from __future__ import annotations

import asyncio
import functools
from typing import cast

from headrace.election.calls import answer_of
from headrace.election.errors import Conflict, Forbidden, LockError
from headrace.election.fence import Fence
from headrace.election.lane import Found, Lane
from headrace.election.surroundings import Surroundings


async def free_fence(fence: Fence, nonces: set[str], around: Surroundings, until: float) -> None:
    """Make every nonce that may rule void, and forget them; ``until`` on the clock."""
    for nonce in sorted(nonces):
        timeout = min(around.timings.call_timeout, until - around.clock())
        if timeout > 0:
            await answer_of(functools.partial(fence.release, nonce), timeout, "release at the fence")
    nonces.clear()


async def free_lock(lane: Lane, around: Surroundings, until: float) -> None:
    """Free one lock if it is ours, whatever was under way; give up when the clock says ``until``."""
    while lane.hold is not None or lane.bid is not None:
        timeout = min(around.timings.call_timeout, until - around.clock())
        if timeout <= 0:
            lane.drop()
            return
        if lane.doubt or lane.hold is None:
            found = await answer_of(lane.place.lock.read, timeout, f"read at {lane.place.name}")
            if not isinstance(found, LockError):
                lane.saw(cast(Found, found), around.clock())
            elif not await _patience(found, around, until):
                lane.drop()
            continue
        record = lane.farewell(lane.hold, around.wall())
        write = functools.partial(lane.place.lock.cas, lane.hold.version, record)
        answer = await answer_of(write, timeout, f"release at {lane.place.name}")
        if not isinstance(answer, LockError):
            lane.freed(answer, record, around.clock())
        elif isinstance(answer, Conflict):
            lane.contradicted()
        elif await _patience(answer, around, until):
            lane.doubt = True
        else:
            lane.drop()


async def announce(fence: Fence, around: Surroundings, until: float) -> None:
    """Tell the others that they may take over."""
    timeout = min(around.timings.call_timeout, until - around.clock())
    if timeout > 0:
        await answer_of(fence.announce, timeout, "announcement")


async def _patience(error: LockError, around: Surroundings, until: float) -> bool:
    """Wait before another try; False if there is no sense in one, or no time."""
    if isinstance(error, Forbidden) or around.clock() + around.timings.pause >= until:
        return False
    await asyncio.sleep(around.timings.pause)
    return True
