"""``headrace worker list``, ``describe`` and ``stop-claiming``: the workers of a queue, and those that are to go."""

from __future__ import annotations

from contextlib import aclosing
from typing import Annotated, Any

import typer

from headrace.cli.output import (
    Format,
    OutputOption,
    PrefixOption,
    UrlFileOption,
    UrlOption,
    age,
    chosen,
    show,
    with_store,
)
from headrace.cli.topology import QueueArgument
from headrace.cli.watching import WatchOption, watched
from headrace.dead_letters import server_now
from headrace.errors import InvalidInput, UnknownQueue
from headrace.ids import decode_id
from headrace.leadership.overview import read_leadership
from headrace.live_jobs import LiveJob, live_jobs
from headrace.stores import Store
from headrace.stores.base import WorkerEntry
from headrace.worker.lost_jobs import LIVES_MS

_COLUMNS = ("NAME", "POD", "NODE", "HOST", "PROCESS", "SLOTS", "INFLIGHT", "STOPS", "HEARD")
SHOWN_JOBS = 100


def list_workers(
    queue: QueueArgument,
    watch: WatchOption = False,
    output: OutputOption = Format.TABLE,
    redis_url: UrlOption = None,
    redis_url_file: UrlFileOption = None,
    prefix: PrefixOption = None,
) -> None:
    """Show the workers of a queue that were heard of within a minute.

    SLOTS: handlers at a time, for all its queues. INFLIGHT: jobs of this queue that it holds. STOPS: for how long it is
    still to claim nothing.
    """

    def look() -> None:
        async def act(store: Store) -> list[WorkerEntry]:
            found = await store.workers(queue)
            if not found and await store.read_topology(queue) is None:  # workers may wait for a queue that comes later
                raise UnknownQueue(queue)
            return found

        found = sorted(with_store(chosen(redis_url, redis_url_file, prefix), act))
        show(output, [_data(each) for each in found], _COLUMNS, [_row(each) for each in found])

    watched(look, watch)


def describe_worker(
    queue: QueueArgument,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name, as `worker list` shows it.")],
    output: OutputOption = Format.TABLE,
    redis_url: UrlOption = None,
    redis_url_file: UrlFileOption = None,
    prefix: PrefixOption = None,
) -> None:
    """Show all that is known of a worker, for an hour also of one that is gone, and which jobs of the queue it runs.

    STATE: works, stops (it claims nothing), silent (not heard of for three beats) or gone. JOBS: at most 100.
    """

    async def act(store: Store) -> tuple[WorkerEntry, bool, list[LiveJob], int]:
        topology = await store.read_topology(queue)
        if topology is None:
            raise UnknownQueue(queue)
        entries = await store.about_workers(queue, [name])
        if not entries:
            raise InvalidInput("NAME", f"{name!r} is no worker of queue {queue}", f"see `headrace worker list {queue}`")
        leadership = await read_leadership(store, queue)
        leads = leadership is not None and leadership.leads and leadership.worker == name
        held = []
        async with aclosing(live_jobs(store, queue, "leased")) as jobs:
            async for each in jobs:
                if each.entry.worker == name:
                    held.append(each)
                if len(held) == SHOWN_JOBS:
                    break
        return entries[0], leads, held, await server_now(store, queue)

    entry, leads, held, now = with_store(chosen(redis_url, redis_url_file, prefix), act)
    jobs: list[dict[str, Any]] = [
        {
            "id": decode_id(each.entry.stored_id),
            "type": each.job.type if each.job else None,
            "version": each.ref.version,
            "partition": each.ref.partition,
            "attempt": each.job.attempt if each.job else None,
            "lease_ms": None if each.entry.at is None else each.entry.at - now,
        }
        for each in held
    ]
    data: dict[str, Any] = {"queue": queue, **_data(entry), "state": state_of(entry), "leads": leads, "jobs": jobs}
    rows: list[tuple[object, ...]] = [
        (field.removesuffix("_ms").upper(), age(value) if field.endswith("_ms") else value)
        for field, value in data.items()
        if field not in ("jobs", "gone") and value not in (None, "")
    ]
    rows += [("JOB", f"{job['id']} ({job['type'] or 'unreadable'}), lease for {age(job['lease_ms'])}") for job in jobs]
    show(output, data, ("FIELD", "VALUE"), rows)


def state_of(entry: WorkerEntry) -> str:
    """Return what a worker does, in a word."""
    if entry.gone:
        return "gone"
    if entry.heard_ms >= LIVES_MS:
        return "silent"
    return "works" if entry.stop_ms is None else "stops"


def stop_claiming(
    queue: QueueArgument,
    workers: Annotated[list[str], typer.Argument(metavar="NAME", help="Names, as `worker list` shows them.")],
    seconds: Annotated[float, typer.Option("--seconds", help="For how long; 0: let them claim again.")] = 600,
    redis_url: UrlOption = None,
    redis_url_file: UrlFileOption = None,
    prefix: PrefixOption = None,
) -> None:
    """Let workers claim nothing from a queue for a while: they hand back what waits and end what they run."""

    async def act(store: Store) -> list[str]:
        known = {entry.worker for entry in await store.workers(queue)}
        if unknown := [name for name in workers if name not in known]:
            raise InvalidInput(
                "NAME", f"{unknown[0]!r} is no worker of queue {queue}", f"see `headrace worker list {queue}`"
            )
        await store.stop_claiming(queue, workers, round(max(0.0, seconds) * 1000))
        return workers

    told = with_store(chosen(redis_url, redis_url_file, prefix), act)
    print(
        f"{len(told)} worker(s) of queue {queue} " + (f"claim nothing for {seconds:g} s" if seconds else "claim again")
    )


def _data(entry: WorkerEntry) -> dict[str, Any]:
    said = entry.beat._asdict()
    del said["stands_by_till"]
    return {
        "name": entry.worker,
        **said,
        "stop_ms": entry.stop_ms,
        "stands_by_ms": entry.stands_by_ms or None,
        "heard_ms": entry.heard_ms,
        "gone": entry.gone,
    }


def _row(entry: WorkerEntry) -> tuple[object, ...]:
    beat = entry.beat
    return (
        entry.worker,
        beat.pod or None,
        beat.node or None,
        beat.host or None,
        beat.pid or None,
        beat.slots,
        beat.in_flight,
        age(entry.stop_ms),
        age(entry.heard_ms),
    )
