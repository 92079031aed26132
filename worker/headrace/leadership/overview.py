"""Who leads a queue, as anybody can see it who reaches the queue's store."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.election.errors import Forbidden, LockError
from headrace.election.fence import FenceView
from headrace.election.record import identity_of
from headrace.errors import AccessDenied, StoreUnavailable
from headrace.leadership.locks import beside, shown_fence
from headrace.stores.base import Store, WorkerEntry

CALL_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Overview:
    """The leadership of a queue.

    ``identity``: of the process that leads, or led last; "" if none ever did. ``worker``: its name in the registry.
    ``leads``: whether its claim to lead stands; ``valid_ms``: for how long, unless it goes on. ``since``: ms since the
    epoch. ``standing_by``: workers that may take over, in the order of their names: whoever looks first does.
    """

    identity: str
    worker: str
    backend: str
    rank: int
    epoch: int
    leads: bool
    valid_ms: int
    since: int
    leads_for_ms: int
    leader: WorkerEntry | None
    standing_by: tuple[WorkerEntry, ...]


@dataclass(frozen=True, slots=True)
class Leader:
    """Who leads a queue now: the worker's name, the lock that it leads by, and the number of its claim."""

    worker: str
    backend: str
    epoch: int


async def read_leader(store: Store, queue: str) -> Leader | None:
    """Return who leads; None if nobody does. Raises StoreUnavailable and AccessDenied."""
    view = await _read_fence(store, queue)
    if view is None or view.seconds <= 0:
        return None
    return Leader(identity_of(view.holder), view.backend, view.epoch)


async def read_leadership(store: Store, queue: str) -> Overview | None:
    """Return who leads; None if this store has no place for leaders. Raises StoreUnavailable and AccessDenied."""
    view = await _read_fence(store, queue)
    if view is None:
        return None
    worker = identity_of(view.holder)
    workers = await store.workers(queue)
    leads = view.seconds > 0
    return Overview(
        identity=view.holder,
        worker=worker,
        backend=view.backend,
        rank=view.rank,
        epoch=view.epoch,
        leads=leads,
        valid_ms=round(view.seconds * 1000),
        since=view.since,
        leads_for_ms=max(0, view.now - view.since) if leads else 0,
        leader=next((each for each in workers if each.worker == worker), None) if leads else None,
        standing_by=tuple(
            sorted(
                (each for each in workers if each.beat.candidate and not (leads and each.worker == worker)),
                key=lambda each: each.worker,
            )
        ),
    )


async def _read_fence(store: Store, queue: str) -> FenceView | None:
    """Return the fence of a queue as it is, over the connections of its store."""
    place = beside(store, queue)
    if place is None:
        return None
    try:
        return await shown_fence(place()).read(CALL_SECONDS)
    except Forbidden as error:
        raise AccessDenied(str(error)) from error
    except LockError as error:
        raise StoreUnavailable(str(error)) from error
