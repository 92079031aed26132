"""``headrace schedule``: jobs that come again and again."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from headrace.cli.command_line import noun
from headrace.cli.output import (
    Format,
    OutputOption,
    PrefixOption,
    UrlFileOption,
    UrlOption,
    YesOption,
    age,
    ask,
    chosen,
    fail,
    show,
    with_store,
)
from headrace.cli.topology import QueueArgument
from headrace.errors import UnknownQueue
from headrace.schedules import ON_TIME_MS, next_time
from headrace.schedules.schedule import shown
from headrace.stores import Store
from headrace.stores.base import Schedules

app = noun("Look at schedules, and remove those that are gone.")

_COLUMNS = ("NAME", "RULE", "NEXT", "UNTIL", "AGE")


@app.command("list")
def list_schedules(
    queue: QueueArgument,
    output: OutputOption = Format.TABLE,
    redis_url: UrlOption = None,
    redis_url_file: UrlFileOption = None,
    prefix: PrefixOption = None,
) -> None:
    """List the schedules that leaders of a queue have seen, by name.

    Schedules are declared in applications. NEXT: its next time (UTC); overdue: that has passed by more than a minute,
    so no leader declares it any more, or nobody leads. UNTIL: up to when its times have been dealt with.
    """
    now, marks, unreadable = with_store(chosen(redis_url, redis_url_file, prefix), lambda store: _read(store, queue))
    for name in sorted(unreadable):
        print(f"what is noted of schedule {name!r} cannot be read; see `headrace audit {queue}`", file=sys.stderr)
    found = [(name, mark, next_time(mark)) for name, mark in sorted(marks.items())]
    data = [
        {
            "name": name,
            "rule": mark.rule,
            "until_ms": mark.at,
            "next_ms": following,
            "overdue": is_overdue(following, now),
        }
        for name, mark, following in found
    ]
    rows = [
        (name, mark.rule, _next(following, now), shown(mark.at), age(max(0, now - mark.at)))
        for name, mark, following in found
    ]
    show(output, data, _COLUMNS, rows)


@app.command("delete")
def delete_schedule(
    queue: QueueArgument,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the schedule.")],
    yes: YesOption = False,
    redis_url: UrlOption = None,
    redis_url_file: UrlFileOption = None,
    prefix: PrefixOption = None,
) -> None:
    """Forget a schedule whose code is gone. Its jobs that wait stay.

    One that is still declared begins anew: what it has missed is not made up for.
    """
    given = chosen(redis_url, redis_url_file, prefix)
    now, marks, _ = with_store(given, lambda store: _read(store, queue))
    if (mark := marks.get(name)) is None:
        fail(f"NAME: {name!r} is no schedule of queue {queue}; see `headrace schedule list {queue}`")
    if not yes:
        if not is_overdue(next_time(mark), now):
            print(f"Warning: schedule {name} is not overdue; if it is still declared it begins anew", file=sys.stderr)
        ask(f"forget schedule {name}", queue)
    if not with_store(given, lambda store: store.forget_schedule(queue, name, mark)):
        fail(f"schedule {name} of queue {queue} has just gone on, so somebody declares it; nothing was changed")
    print(f"schedule {name} of queue {queue} is forgotten")


def is_overdue(following: int | None, now: int) -> bool:
    """Whether a schedule's next time (ms) has passed for longer than a leader takes."""
    return following is not None and now - following > ON_TIME_MS


def _next(following: int | None, now: int) -> str | None:
    if following is None:
        return None
    return "overdue" if is_overdue(following, now) else shown(following)


async def _read(store: Store, queue: str) -> Schedules:
    if await store.read_topology(queue) is None:
        raise UnknownQueue(queue)
    return await store.read_schedules(queue)
