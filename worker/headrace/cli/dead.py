"""``headrace dead``: jobs that have no further run."""

from __future__ import annotations

import json
from collections import Counter
from typing import Annotated, Any

import typer

from headrace.cli.command_line import noun
from headrace.cli.output import (
    DryRunOption,
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
from headrace.dead_letter_lines import line_of
from headrace.dead_letters import DeadJob, Wanted, dead_jobs, delete_dead, retry_dead, server_now
from headrace.producer import Producer
from headrace.stores import Store

app = noun("List dead letters, put them back, delete them.")

IdOption = Annotated[list[str] | None, typer.Option("--id", help="Only this job; may be repeated.")]
TypeOption = Annotated[str | None, typer.Option("--type", help="Only jobs of this type.")]
ErrorOption = Annotated[str | None, typer.Option("--error", help="Only jobs whose last error holds this text.")]
AllOption = Annotated[bool, typer.Option("--all", help="All of them: needed if there is no filter.")]
_NONE = "no dead letter matches"
LimitOption = Annotated[int, typer.Option("--limit", min=1, help="Jobs at most.")]


@app.command("list")
def list_dead(
    queue: QueueArgument,
    id: IdOption = None,
    type: TypeOption = None,
    error: ErrorOption = None,
    limit: LimitOption = 100,
    output: OutputOption = Format.TABLE,
    redis_url: UrlOption = None,
    redis_url_file: UrlFileOption = None,
    prefix: PrefixOption = None,
) -> None:
    """List dead letters, oldest first within each partition."""

    async def act(store: Store) -> tuple[int, list[DeadJob]]:
        return await server_now(store, queue), await _matching(store, queue, _filter(id, type, error), limit)

    now, found = with_store(chosen(redis_url, redis_url_file, prefix), act)
    rows = [
        (
            dead.id,
            dead.job.type if dead.job else None,
            dead.ref.label,
            dead.job.attempt if dead.job else None,
            dead.error.partition("\n")[0][:60],
            age(now - dead.letter.died_at),
        )
        for dead in found
    ]
    show(output, [line_of(dead) for dead in found], ("NAME", "TYPE", "PARTITION", "RUNS", "ERROR", "AGE"), rows)


@app.command("groups")
def group_dead(
    queue: QueueArgument,
    output: OutputOption = Format.TABLE,
    redis_url: UrlOption = None,
    redis_url_file: UrlFileOption = None,
    prefix: PrefixOption = None,
) -> None:
    """Count dead letters by type and first line of the error, most first."""

    async def act(store: Store) -> Counter[tuple[str, str]]:
        groups: Counter[tuple[str, str]] = Counter()
        async for dead in dead_jobs(store, queue):
            groups[dead.job.type if dead.job else "", dead.error.partition("\n")[0]] += 1
        return groups

    groups = with_store(chosen(redis_url, redis_url_file, prefix), act).most_common()
    data = [{"type": kind, "error": error, "jobs": jobs} for (kind, error), jobs in groups]
    show(output, data, ("TYPE", "ERROR", "JOBS"), [(kind, error[:80], jobs) for (kind, error), jobs in groups])


@app.command("retry")
def retry(
    queue: QueueArgument,
    id: IdOption = None,
    type: TypeOption = None,
    error: ErrorOption = None,
    all: AllOption = False,
    limit: LimitOption = 1_000_000,
    yes: YesOption = False,
    dry_run: DryRunOption = False,
    redis_url: UrlOption = None,
    redis_url_file: UrlFileOption = None,
    prefix: PrefixOption = None,
) -> None:
    """Put dead letters back into the active version, to run now with all their runs before them."""
    wanted = _filter(id, type, error, all)
    given = chosen(redis_url, redis_url_file, prefix)
    before = with_store(given, lambda store: server_now(store, queue))
    if not _agreed("retry", queue, wanted, before, given, limit, yes, dry_run):
        return

    async def act(store: Store) -> Counter[bool | None]:
        producer = Producer(store)
        found = await _matching(store, queue, wanted, limit, before)
        return Counter([await retry_dead(producer, store, dead) for dead in found])

    done = with_store(given, act)
    if not done.total():
        print(_NONE)
        return
    print(f"{done[True]} enqueued")
    if done[False]:
        print(f"{done[False]} kept: a job with that id is live; retry again when it has ended, or delete the letter")
    if done[None]:
        print(f"{done[None]} kept: cannot be read by this version; export or delete them")


@app.command("delete")
def delete(
    queue: QueueArgument,
    id: IdOption = None,
    type: TypeOption = None,
    error: ErrorOption = None,
    all: AllOption = False,
    limit: LimitOption = 1_000_000,
    yes: YesOption = False,
    dry_run: DryRunOption = False,
    redis_url: UrlOption = None,
    redis_url_file: UrlFileOption = None,
    prefix: PrefixOption = None,
) -> None:
    """Forget dead letters for ever."""
    wanted = _filter(id, type, error, all)
    given = chosen(redis_url, redis_url_file, prefix)
    before = with_store(given, lambda store: server_now(store, queue))
    if not _agreed("delete", queue, wanted, before, given, limit, yes, dry_run):
        return

    async def act(store: Store) -> int:
        return await delete_dead(store, await _matching(store, queue, wanted, limit, before))

    deleted = with_store(given, act)
    print(f"{deleted} deleted" if deleted else _NONE)


@app.command("export")
def export(
    queue: QueueArgument,
    id: IdOption = None,
    type: TypeOption = None,
    error: ErrorOption = None,
    limit: LimitOption = 1_000_000,
    redis_url: UrlOption = None,
    redis_url_file: UrlFileOption = None,
    prefix: PrefixOption = None,
) -> None:
    """Print dead letters as JSON lines, from which `headrace dead import` makes them again."""

    async def act(store: Store) -> None:
        wanted, left = _filter(id, type, error), limit
        async for dead in dead_jobs(store, queue):
            if wanted(dead):
                print(json.dumps(line_of(dead), ensure_ascii=False))
                left -= 1
                if not left:
                    break

    with_store(chosen(redis_url, redis_url_file, prefix), act)


def _filter(id: list[str] | None, type: str | None, error: str | None, all: bool | None = None) -> Wanted:
    """Return the filter of a command; ``all`` not None: an action, which must not run without one by accident."""
    given = bool(id) or type is not None or error is not None
    if all is not None and given == all:
        fail("give a filter (--id, --type, --error), or --all for every dead letter of the queue, not both")

    def wanted(dead: DeadJob) -> bool:
        return (
            (not id or dead.id in id)
            and (type is None or (dead.job is not None and dead.job.type == type))
            and (error is None or error in dead.error)
        )

    return wanted


async def _matching(
    store: Store, queue: str, wanted: Wanted, limit: int, died_before: int | None = None
) -> list[DeadJob]:
    found: list[DeadJob] = []
    async for dead in dead_jobs(store, queue, died_before=died_before):
        if len(found) == limit:
            break
        if wanted(dead):
            found.append(dead)
    return found


def _agreed(
    verb: str, queue: str, wanted: Wanted, before: int, given: dict[str, Any], limit: int, yes: bool, dry_run: bool
) -> bool:
    """Say how many jobs that died ``before`` an action is about, and ask. Ends with code 2 if the person declines."""
    if yes and not dry_run:
        return True

    async def count(store: Store) -> int:
        return len(await _matching(store, queue, wanted, limit, before))

    jobs = with_store(given, count)
    if dry_run:
        print(f"{jobs} dead letter(s) of queue {queue} would be affected")
        return False
    if not jobs:
        print(_NONE)
        return False
    ask(f"{verb} {jobs} dead letter(s)", queue)
    return True
