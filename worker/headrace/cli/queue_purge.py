"""``headrace queue purge``: removes many jobs at once."""

from __future__ import annotations

import re
from collections import Counter
from typing import Annotated, Any, get_args

import typer

from headrace.cli.output import (
    DryRunOption,
    Format,
    OutputOption,
    PrefixOption,
    UrlFileOption,
    UrlOption,
    YesOption,
    ask,
    ask_for_name,
    chosen,
    fail,
    show,
    with_store,
)
from headrace.cli.topology import QueueArgument
from headrace.dead_letters import server_now
from headrace.pacing import DEFAULT_LOAD
from headrace.purging import PURGEABLE, Purge, PurgeState, purge_queue
from headrace.stores import Store

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


def purge(
    queue: QueueArgument,
    state: Annotated[
        list[str] | None,
        typer.Option("--state", help=f"Only these, may be repeated: {', '.join(PURGEABLE)}.", show_default=False),
    ] = None,
    type: Annotated[str | None, typer.Option("--type", help="Only jobs of this type.")] = None,
    older_than: Annotated[
        str | None,
        typer.Option(
            "--older-than",
            help="Only jobs enqueued (dead and finished ones: ended) so long ago, e.g. 90s, 30m, 12h, 7d.",
        ),
    ] = None,
    version: Annotated[int | None, typer.Option("--version", help="Only jobs of this version.")] = None,
    all: Annotated[bool, typer.Option("--all", help="Whatever does not run: needed if there is no filter.")] = False,
    load: Annotated[
        float, typer.Option("--load", help="Share of the time in which it keeps the store busy.", min=0.01, max=1.0)
    ] = DEFAULT_LOAD,
    yes: YesOption = False,
    dry_run: DryRunOption = False,
    output: OutputOption = Format.TABLE,
    redis_url: UrlOption = None,
    redis_url_file: UrlFileOption = None,
    prefix: PrefixOption = None,
) -> None:
    """Remove jobs for ever: those that wait, dead letters and finished ones. Those that run are left alone.

    It is for what is there when it begins. Broken off, the same again goes on.
    """
    filtered = bool(state or type is not None or older_than or version is not None)
    if filtered == all:
        fail("give a filter (--state, --type, --older-than, --version), or --all for whatever does not run, not both")
    states = tuple(dict.fromkeys(_states(state, by_type=type is not None)))
    age_ms = _age_ms(older_than) if older_than is not None else 0
    given = chosen(redis_url, redis_url_file, prefix)

    async def begin(store: Store) -> Purge:
        return Purge(states, await server_now(store, queue) - age_ms, type, version)

    wanted = with_store(given, begin)

    async def count(store: Store) -> Counter[PurgeState]:
        return await purge_queue(store, queue, wanted, dry_run=True, load=load)

    async def act(store: Store) -> Counter[PurgeState]:
        return await purge_queue(store, queue, wanted, load=load)

    if dry_run or not yes:
        found = with_store(given, count)
        if dry_run or not found:
            _show(output, queue, found, removed=False)
            return
        action = f"remove {', '.join(f'{number} {name}' for name, number in found.items())} job(s)"
        if all:
            ask_for_name(f"{action} of queue {queue}", queue)
        else:
            ask(action, queue)
    _show(output, queue, with_store(given, act), removed=True)


def _states(given: list[str] | None, *, by_type: bool) -> list[PurgeState]:
    if not given:  # finished jobs are kept in batches of all types
        return [name for name in PURGEABLE if not (by_type and name == "succeeded")]
    known: dict[str, PurgeState] = {name: name for name in get_args(PurgeState)} | {
        "retry": "retry_wait",
        "done": "succeeded",
    }
    if unknown := [name for name in given if name not in known]:
        fail(f"--state: {unknown[0]!r} cannot be purged; give some of {', '.join(PURGEABLE)}")
    return [known[name] for name in given]


def _age_ms(text: str) -> int:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smhdw])", text)
    if found is None:
        fail(f"--older-than: {text!r} is no duration; give a number and s, m, h, d or w, for example 12h")
    return round(float(found[1]) * _SECONDS[found[2]] * 1000)


def _show(output: Format, queue: str, found: Counter[PurgeState], *, removed: bool) -> None:
    data: dict[str, Any] = {"queue": queue, "removed": removed, "jobs": dict(found), "total": found.total()}
    verb = "REMOVED" if removed else "MATCHING"
    rows: list[tuple[object, ...]] = [(name, number) for name, number in found.items()] or [("all", 0)]
    show(output, data, ("STATE", verb), rows)
