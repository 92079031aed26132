"""``headrace worker list`` and ``stop-claiming``: the workers of a queue, and what is told to those that are to go."""

from __future__ import annotations

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
from headrace.errors import InvalidInput
from headrace.stores import Store
from headrace.stores.base import WorkerEntry

_COLUMNS = ("NAME", "POD", "NODE", "HOST", "PROCESS", "SLOTS", "INFLIGHT", "STOPS", "HEARD")


def list_workers(
    queue: QueueArgument,
    output: OutputOption = Format.TABLE,
    redis_url: UrlOption = None,
    redis_url_file: UrlFileOption = None,
    prefix: PrefixOption = None,
) -> None:
    """Show the workers of a queue that were heard of within a minute.

    SLOTS: handlers at a time, for all its queues. INFLIGHT: jobs of this queue that it holds. STOPS: for how long it is
    still to claim nothing.
    """

    async def act(store: Store) -> list[WorkerEntry]:
        return await store.workers(queue)

    found = sorted(with_store(chosen(redis_url, redis_url_file, prefix), act))
    show(output, [_data(each) for each in found], _COLUMNS, [_row(each) for each in found])


def stop_claiming(
    queue: QueueArgument,
    workers: Annotated[list[str], typer.Argument(metavar="NAME...", help="Names, as `worker list` shows them.")],
    seconds: Annotated[float, typer.Option("--seconds", help="For how long; 0: let them claim again.")] = 600,
    redis_url: UrlOption = None,
    redis_url_file: UrlFileOption = None,
    prefix: PrefixOption = None,
) -> None:
    """Let workers claim nothing from a queue for a while: they hand back what waits and end what they run."""

    async def act(store: Store) -> list[str]:
        known = {entry.worker for entry in await store.workers(queue)}
        if unknown := [name for name in workers if name not in known]:
            raise InvalidInput("NAME", f"{unknown[0]!r} is no worker of queue {queue}", "see `headrace worker list`")
        await store.stop_claiming(queue, workers, round(max(0.0, seconds) * 1000))
        return workers

    told = with_store(chosen(redis_url, redis_url_file, prefix), act)
    print(
        f"{len(told)} worker(s) of queue {queue} " + (f"claim nothing for {seconds:g} s" if seconds else "claim again")
    )


def _data(entry: WorkerEntry) -> dict[str, Any]:
    return {
        "name": entry.worker,
        **entry.beat._asdict(),
        "stop_ms": entry.stop_ms,
        "heard_ms": entry.heard_ms,
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
