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
from headrace.inquiry import Inquiry, grouped, newest_letters
from headrace.job_status import State
from headrace.known_queue import topology_of
from headrace.pacing import DEFAULT_LOAD, paced
from headrace.stores.base import INDEXES, MAX_WITHDRAW, Sought, Store, Withdrawn
from headrace.topology import PartitionRef, Topology, check_queue_name

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
    """Remove every dead letter of an id."""
    topology = await topology_of(store, queue)
    stored, deleted = encode_id(id), 0
    for version in sorted(topology.versions):  # they move from older versions to newer ones
        ((ref, _),) = grouped(topology, version, [id])
        while letters := await newest_letters(store, ref, [stored]):
            deleted += await store.remove_dead(ref, [letters[stored].letter])
    return deleted


async def _withdraw(store: Store, queue: str, ids: list[str], *, running: bool) -> dict[str, Withdrawn]:
    """Remove jobs wherever they are live; where each of those was.

    Jobs move from older versions to newer ones. So the oldest is looked at first: one that has left it is met in the
    next. And a version that was promoted meanwhile may have taken them all, so they are looked for once more then.
    """
    pass_ = _Pass(store, ids, running)
    topology = await topology_of(store, queue)
    for _ in range(_TRIES):
        if moving := await pass_.through(topology):
            await asyncio.sleep(_PAUSE_SECONDS)
            topology = await topology_of(store, queue)
            continue
        known, topology = topology, await topology_of(store, queue) if pass_.left else topology
        if topology.versions.keys() == known.versions.keys():
            if pass_.unlisted:
                raise JobUnlisted(queue, min(pass_.unlisted))
            return pass_.found
    raise JobMoving(queue, (moving or pass_.left)[0])


class _Pass:
    """Goes through the versions of a queue, over and over, until each job was found or is nowhere.

    ``unlisted``: jobs that are ready and were found in no list, twice.
    """

    def __init__(self, store: Store, ids: list[str], running: bool) -> None:
        self.found: dict[str, Withdrawn] = {}
        self.unlisted = set[str]()
        self._store = store
        self._ids = ids
        self._running = running
        self._sought = set[str]()

    @property
    def left(self) -> list[str]:
        """Those that were not found yet."""
        return [id for id in self._ids if id not in self.found.keys() | self.unlisted]

    async def through(self, topology: Topology) -> list[str]:
        """Look at each version once; those that are on their way."""
        moving: list[str] = []
        for version in sorted(topology.versions):
            for ref, group in grouped(topology, version, self.left, MAX_WITHDRAW):
                stored = [encode_id(id) for id in group]
                places = await self._store.withdraw(ref, stored, running=self._running)
                for id, place in zip(group, places, strict=True):
                    if place == "moving" or (place == "deep" and not await self._dug_out(ref, id)):
                        moving.append(id)
                    elif place and place != "deep":
                        self.found[id] = place
        return [id for id in moving if id in self.left]

    async def _dug_out(self, ref: PartitionRef, id: str) -> bool:
        """Whether a job in the middle of a long list was removed; if not, it is elsewhere by now, or nowhere."""
        if id in self._sought:
            self.unlisted.add(id)
            return True
        self._sought.add(id)
        if found := await _search(self._store, ref, encode_id(id)):
            self.found[id] = "ready"
        return found


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
