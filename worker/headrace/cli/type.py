"""``headrace type``: jobs of types that no worker knew."""

from __future__ import annotations

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
    ask,
    chosen,
    show,
    with_store,
)
from headrace.cli.topology import QueueArgument
from headrace.parked_jobs import bury_type, parked_types
from headrace.stores import Store

app = noun("Show the types that no worker knew, and give them up.")


@app.command("list")
def list_types(
    queue: QueueArgument,
    output: OutputOption = Format.TABLE,
    redis_url: UrlOption = None,
    redis_url_file: UrlFileOption = None,
    prefix: PrefixOption = None,
) -> None:
    """Count the parked jobs of a queue by type. They run when a worker that knows the type starts."""

    async def act(store: Store) -> Counter[str]:
        return await parked_types(store, queue)

    found = with_store(chosen(redis_url, redis_url_file, prefix), act).most_common()
    data: list[dict[str, Any]] = [{"type": type, "parked": jobs} for type, jobs in found]
    show(output, data, ("TYPE", "PARKED"), found)


@app.command("delete")
def delete_type(
    queue: QueueArgument,
    type: Annotated[str, typer.Option("--type", help="Type that no worker will know again.", show_default=False)],
    yes: YesOption = False,
    dry_run: DryRunOption = False,
    redis_url: UrlOption = None,
    redis_url_file: UrlFileOption = None,
    prefix: PrefixOption = None,
) -> None:
    """Make the parked jobs of a type dead letters, which `headrace dead` lists, puts back or deletes."""
    given = chosen(redis_url, redis_url_file, prefix)

    async def count(store: Store) -> int:
        return (await parked_types(store, queue))[type]

    async def act(store: Store) -> int:
        return await bury_type(store, queue, type)

    if dry_run or not yes:
        jobs = with_store(given, count)
        if dry_run:
            print(f"{jobs} parked job(s) of type {type} would become dead letters")
            return
        if not jobs:
            print(f"no job of type {type} is parked")
            return
        ask(f"make {jobs} parked job(s) of type {type} dead letters", queue)
    dead = with_store(given, act)
    print(f"{dead} dead letter(s) more" if dead else f"no job of type {type} is parked")
