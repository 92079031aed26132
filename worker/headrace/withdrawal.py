"""Taking single jobs out of a queue: cancelling live ones, deleting whatever there is of a job.

A job is removed in one step, from wherever it waits. Of one that runs, the lease ends with it: whatever its worker says
afterwards is refused, and the worker tells the handler to stop when it next renews the lease. A job that is on its way
to another version is waited for, for a moment.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final, NamedTuple

from headrace.errors import JobMoving, JobRunning, JobUnlisted
from headrace.ids import check_id, encode_id
from headrace.inquiry import Inquiry, grouped, newest_first, newest_letters
from headrace.job_status import State
from headrace.known_queue import topology_of
from headrace.pacing import DEFAULT_LOAD, paced
from headrace.stores.base import INDEXES, MAX_WITHDRAW, Sought, Store, Withdrawn
from headrace.topology import PartitionRef, check_queue_name

_STATES: Final[dict[Withdrawn, State]] = {
    "scheduled": "scheduled", "ready": "ready", "retry": "retry_wait", "parked": "parked", "leased": "leased",
    "running": "leased",
}  # fmt: skip
_TRIES = 20
_PAUSE_SECONDS = 0.1


class Cancellation(NamedTuple):
    """What became of a request to cancel a job. ``state``: where the job was; of one that had ended, how it ended."""

    id: str
    state: State
    cancelled: bool


async def cancel_jobs(store: Store, queue: str, ids: Iterable[str], *, running: bool = True) -> list[Cancellation]:
    """Remove live jobs for good; what became of each, in the order of ``ids``.

    ``running``: those that run, too. Nothing is kept of a cancelled job, so its id may be used again at once. Raises
    InvalidInput, UnknownQueue, StoreUnavailable, JobMoving for a job whose move to another version does not end, or
    JobUnlisted for one that waits nowhere; all others have been dealt with then.
    """
    asked = list(dict.fromkeys(map(check_id, ids)))
    found = await _withdraw(store, check_queue_name(queue), asked, running=running)
    ended = await Inquiry(store, queue).look([id for id in asked if id not in found])
    return [
        Cancellation(id, _STATES[found[id]], found[id] != "running")
        if id in found
        else Cancellation(id, ended[id].state, False)
        for id in asked
    ]


async def delete_job(store: Store, queue: str, id: str) -> list[State]:
    """Forget a job that does not run, and every dead letter of its id; where it was, an entry for each.

    Raises JobRunning, and the errors of `cancel_jobs`.
    """
    (waited,) = await cancel_jobs(store, queue, [id], running=False)
    if waited.state == "leased" and not waited.cancelled:
        raise JobRunning(queue, id)
    removed: list[State] = [waited.state] if waited.cancelled else []
    return removed + ["dead"] * await _delete_letters(store, queue, id)


async def _delete_letters(store: Store, queue: str, id: str) -> int:
    """Remove every dead letter of an id, newest first."""
    topology = await topology_of(store, queue)
    stored, deleted = encode_id(id), 0
    for version in newest_first(topology):
        ((ref, _),) = grouped(topology, version, [id])
        while letters := await newest_letters(store, ref, [stored]):
            deleted += await store.remove_dead(ref, [letters[stored].letter])
    return deleted


async def _withdraw(store: Store, queue: str, ids: list[str], *, running: bool) -> dict[str, Withdrawn]:
    """Remove jobs wherever they are live; where each of those was. A job moves from older versions to newer ones."""
    found: dict[str, Withdrawn] = {}
    sought, unlisted = set[str](), set[str]()
    for _ in range(_TRIES):
        topology = await topology_of(store, queue)
        moving: list[str] = []
        for version in newest_first(topology):
            for ref, group in grouped(
                topology, version, [id for id in ids if id not in found.keys() | unlisted], MAX_WITHDRAW
            ):
                places = await store.withdraw(ref, [encode_id(id) for id in group], running=running)
                for id, place in zip(group, places, strict=True):
                    if place == "moving":
                        moving.append(id)
                    elif place == "deep" and id in sought:
                        unlisted.add(id)
                    elif place == "deep":
                        sought.add(id)
                        if await _search(store, ref, encode_id(id)):
                            found[id] = "ready"
                        else:
                            moving.append(id)  # it is elsewhere by now, or nowhere
                    elif place:
                        found[id] = place
        moving = [id for id in moving if id not in found]
        if not moving and unlisted:
            raise JobUnlisted(queue, min(unlisted))
        if not moving:
            return found
        await asyncio.sleep(_PAUSE_SECONDS)
    raise JobMoving(queue, moving[0])


async def _search(store: Store, ref: PartitionRef, stored_id: bytes) -> bool:
    """Go through the lists of ready jobs for one of them, and remove it; the store is left time for others.

    Each step looks at a quarter of the last one's entries again, since entries behind them may be claimed meanwhile.
    """
    pause = paced(DEFAULT_LOAD)
    for index in INDEXES["ready"]:
        passed = 0
        while not (step := await store.purge(ref, index, Sought(stored_id=stored_id), passed)).end:
            if step.matching:
                return True
            passed += step.seen - step.seen // 4
            await pause()
    return False
