"""``headrace schedule``: jobs that come again and again."""

from __future__ import annotations

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
from headrace.errors import UnknownQueue
from headrace.schedules.schedule import shown
from headrace.stores import Store
from headrace.stores.base import Schedules

app = noun("Look at schedules.")

_COLUMNS = ("NAME", "RULE", "UNTIL", "AGE")


@app.command("list")
def list_schedules(
    queue: QueueArgument,
    output: OutputOption = Format.TABLE,
    redis_url: UrlOption = None,
    redis_url_file: UrlFileOption = None,
    prefix: PrefixOption = None,
) -> None:
    """List the schedules that leaders of a queue have seen, by name.

    Schedules are declared in applications. UNTIL: up to when (UTC) the times of one have been dealt with; one that is
    no longer declared stands still.
    """

    async def act(store: Store) -> Schedules:
        if await store.read_topology(queue) is None:
            raise UnknownQueue(queue)
        return await store.read_schedules(queue)

    now, marks = with_store(chosen(redis_url, redis_url_file, prefix), act)
    found = sorted(marks.items())
    data = [{"name": name, "rule": mark.rule, "until_ms": mark.at} for name, mark in found]
    rows = [(name, mark.rule, shown(mark.at), age(max(0, now - mark.at))) for name, mark in found]
    show(output, data, _COLUMNS, rows)
