"""``headrace leader``: who leads a queue."""

from __future__ import annotations

from typing import Any

from headrace.cli.command_line import noun
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
from headrace.errors import UnknownQueue
from headrace.leadership.overview import Overview, read_leadership
from headrace.stores import Store
from headrace.stores.base import WorkerEntry

app = noun("Show who leads.")

_COLUMNS = ("NAME", "LEADER", "BACKEND", "EPOCH", "VALID", "NEXT", "AGE")
_SHOWN = 3


@app.command("show")
def show_leader(
    queue: QueueArgument,
    watch: WatchOption = False,
    output: OutputOption = Format.TABLE,
    redis_url: UrlOption = None,
    redis_url_file: UrlFileOption = None,
    prefix: PrefixOption = None,
) -> None:
    """Show which worker leads a queue, through which lock, under which epoch, since when, and who stands by.

    VALID: until its right ends unless it is renewed. NEXT: workers that may take over; whoever looks first does.
    """

    def look() -> None:
        async def act(store: Store) -> Overview | None:
            if await store.read_topology(queue) is None:
                raise UnknownQueue(queue)
            return await read_leadership(store, queue)

        found = with_store(chosen(redis_url, redis_url_file, prefix), act)
        show(output, {"queue": queue, **_data(found)}, _COLUMNS, [(queue, *_row(found))])

    watched(look, watch)


def _data(found: Overview | None) -> dict[str, Any]:
    if found is None:
        return {"leader": None, "epoch": 0, "standing_by": []}
    leader = {
        "worker": found.worker,
        "identity": found.identity,
        **_place(found.leader),
        "backend": found.backend,
        "rank": found.rank,
        "since_ms": found.since,
        "leads_for_ms": found.leads_for_ms,
        "valid_ms": found.valid_ms,
    }
    return {
        "leader": leader if found.leads else None,
        "epoch": found.epoch,
        "last": found.worker or None,
        "standing_by": [{"worker": each.worker, **_place(each)} for each in found.standing_by],
    }


def _place(entry: WorkerEntry | None) -> dict[str, str]:
    return {"pod": entry.beat.pod, "node": entry.beat.node} if entry is not None else {"pod": "", "node": ""}


def _row(found: Overview | None) -> tuple[object, ...]:
    if found is None:
        return (None, None, 0, None, None, None)
    names = [each.worker for each in found.standing_by]
    more = f" +{len(names) - _SHOWN}" if len(names) > _SHOWN else ""
    following = ",".join(names[:_SHOWN]) + more or None
    if not found.leads:
        return (None, None, found.epoch, None, following, None)
    return (found.worker, found.backend, found.epoch, age(found.valid_ms), following, age(found.leads_for_ms))
