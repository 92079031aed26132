"""Who leads a queue, as anybody can see it who reaches the queue's store."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.election.errors import LockError
from headrace.election.record import identity_of
from headrace.errors import StoreUnavailable
from headrace.leadership.locks import beside, open_fence
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


async def read_leadership(store: Store, queue: str) -> Overview | None:
    """Return who leads; None if this store has no place for leaders. Raises StoreUnavailable."""
    place = beside(store, queue)
    if place is None:
        return None
    fence = open_fence(place, CALL_SECONDS)
    try:
        view = await fence.read(CALL_SECONDS)
    except LockError as error:
        raise StoreUnavailable(str(error)) from error
    finally:
        await fence.close()
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
