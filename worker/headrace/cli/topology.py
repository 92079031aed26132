"""``headrace topology``: versions of a queue."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from headrace.cli.command_line import noun
from headrace.cli.output import (
    Exit,
    Format,
    OutputOption,
    PrefixOption,
    UnchangedOption,
    UrlFileOption,
    UrlOption,
    chosen,
    show,
    with_store,
)
from headrace.errors import UnknownQueue
from headrace.lifecycle import complete, promote
from headrace.stores import Store
from headrace.topology import Topology

app = noun("Show, promote and complete versions of a queue.")

QueueArgument = Annotated[str, typer.Argument(metavar="QUEUE", help="Name of the queue.")]
VersionOption = Annotated[int, typer.Option("--version", help="Number of the version.", show_default=False)]


@app.command("show")
def show_topology(
    queue: QueueArgument,
    output: OutputOption = Format.TABLE,
    redis_url: UrlOption = None,
    redis_url_file: UrlFileOption = None,
    prefix: PrefixOption = None,
) -> None:
    """Show the versions of a queue."""

    async def act(store: Store) -> Topology:
        topology = await store.read_topology(queue)
        if topology is None:
            raise UnknownQueue(queue)
        return topology

    _show(output, with_store(chosen(redis_url, redis_url_file, prefix), act))


@app.command("promote")
def promote_version(
    queue: QueueArgument,
    version: VersionOption,
    partitions: Annotated[int, typer.Option("--partitions", help="Partitions of the version.", show_default=False)],
    error_unchanged: UnchangedOption = False,
    output: OutputOption = Format.TABLE,
    redis_url: UrlOption = None,
    redis_url_file: UrlFileOption = None,
    prefix: PrefixOption = None,
) -> None:
    """Make a version the active one; the others drain. Creates the queue if there is none."""

    async def act(store: Store) -> tuple[bool, Topology]:
        before = await store.read_topology(queue)
        after = await promote(store, queue, version, partitions)
        return before is not None and before.epoch == after.epoch, after

    unchanged, topology = with_store(chosen(redis_url, redis_url_file, prefix), act)
    _show(output, topology)
    if unchanged and error_unchanged:
        raise typer.Exit(Exit.UNCHANGED)


@app.command("complete")
def complete_version(
    queue: QueueArgument,
    version: VersionOption,
    output: OutputOption = Format.TABLE,
    redis_url: UrlOption = None,
    redis_url_file: UrlFileOption = None,
    prefix: PrefixOption = None,
) -> None:
    """Remove a drained version. Refused, with counts and code 8, while jobs are left in it."""

    async def act(store: Store) -> Topology:
        return await complete(store, queue, version)

    _show(output, with_store(chosen(redis_url, redis_url_file, prefix), act))


def _show(output: Format, topology: Topology) -> None:
    data: dict[str, Any] = {"queue": topology.queue, **json.loads(topology.to_json())}
    rows = [
        (topology.queue, number, version.state, version.partitions)
        for number, version in sorted(topology.versions.items())
    ]
    show(output, data, ("NAME", "VERSION", "STATE", "PARTITIONS"), rows)
