"""``headrace doctor``: one look at everything that jobs depend on, and what to do about what is wrong."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from headrace.cli.output import (
    Exit,
    Format,
    OutputOption,
    PrefixOption,
    UrlFileOption,
    UrlOption,
    chosen,
    show,
    with_store,
)
from headrace.cli.status import is_fresh
from headrace.diagnosis import Check, QueueFacts, clock_check, queue_checks, server_checks, worst
from headrace.drift import queue_findings
from headrace.errors import AccessDenied, HeadraceError, StoreUnavailable, TopologyUnreadable, UnknownQueue
from headrace.leadership.overview import read_leadership
from headrace.statistics import summarise
from headrace.stores import Store

_COLUMNS = ("CHECK", "WHERE", "RESULT", "FOUND")
_ANY_QUEUE = "doctor"
"""What is asked of its schedules, none, to hear the server's time from a script."""


def doctor(
    queues: Annotated[
        list[str] | None,
        typer.Argument(metavar="QUEUE", help="Queues to look at; all if none is named."),
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Warnings count as failures.")] = False,
    output: OutputOption = Format.TABLE,
    redis_url: UrlOption = None,
    redis_url_file: UrlFileOption = None,
    prefix: PrefixOption = None,
) -> None:
    """Look at servers, clock and scripts, and of each queue at topology, workers, leader, waiting and dead jobs.

    RESULT: OK, WARN or FAIL; below the table, what to do. Ends with 1 if something fails, with 4 if the credentials are
    refused. Only looks.
    """
    refused: list[HeadraceError] = []

    async def act(store: Store) -> list[Check]:
        checks: list[Check] = []
        try:
            await store.check()
            checks += server_checks(await store.facts())
            checks += await _clock(store)
        except HeadraceError as error:
            refused.append(error)
            return [*checks, _failed("scripts" if checks else "connection", "server", error)]
        for queue in queues or await store.queues():
            checks += await _queue(store, queue)
        return checks

    checks = with_store(chosen(redis_url, redis_url_file, prefix), act, check=False)
    _print(output, checks)
    if any(isinstance(error, AccessDenied) for error in refused):
        raise typer.Exit(Exit.AUTHENTICATION)
    if worst(checks) == "FAIL" or (strict and worst(checks) == "WARN"):
        raise typer.Exit(Exit.ERROR)


async def _clock(store: Store) -> list[Check]:
    before = time.time_ns() // 1_000_000
    now = (await store.read_schedules(_ANY_QUEUE)).now
    after = time.time_ns() // 1_000_000
    scripts = Check("scripts", "server", "OK", "they run")
    return [scripts, clock_check("server", now, before - 1, after + 1)]


async def _queue(store: Store, queue: str) -> list[Check]:
    """Look at one queue; what fails with it is a check, too."""
    try:
        topology = await store.read_topology(queue)
        if topology is None:
            raise UnknownQueue(queue)
        statistics = await store.read_stats(queue)
        if statistics is None or not is_fresh(statistics, topology):
            statistics = await summarise(store, queue)
        drift = await queue_findings(store, queue)
        leadership = await read_leadership(store, queue)
        return queue_checks(QueueFacts(topology, drift, statistics, await store.workers(queue), leadership))
    except (UnknownQueue, TopologyUnreadable, StoreUnavailable) as error:
        return [_failed("topology", f"queue {queue}", error)]


def _failed(check: str, where: str, error: HeadraceError) -> Check:
    problem, _, remedy = str(error).partition("; ")
    return Check(check, where, "FAIL", problem, remedy)


def _print(output: Format, checks: Sequence[Check]) -> None:
    data: Any = {"result": worst(checks), "checks": [check._asdict() for check in checks]}
    rows = [(check.check, check.where, check.verdict, check.told) for check in checks]
    show(output, data, _COLUMNS, rows)
    if output is Format.TABLE:
        for remedy in dict.fromkeys(each.remedy for each in checks if each.remedy and each.verdict != "OK"):
            print(f"- {remedy}")
