"""``headrace queue``: queues as a whole."""

from __future__ import annotations

import sys
from typing import Annotated

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
    ask_for_name,
    chosen,
    show,
    with_store,
)
from headrace.cli.topology import QueueArgument
from headrace.deletion import Deletion, delete_queue, held_jobs
from headrace.errors import UnknownQueue
from headrace.pausing import owner_name
from headrace.stores import Store
from headrace.topology import Topology

app = noun("List, pause, purge and delete queues.")


@app.command("delete")
def delete(
    queue: QueueArgument,
    only_if_empty: Annotated[
        bool, typer.Option("--only-if-empty", help="Refuse if it holds a live job or a dead letter.")
    ] = False,
    yes: YesOption = False,
    dry_run: DryRunOption = False,
    output: OutputOption = Format.TABLE,
    redis_url: UrlOption = None,
    redis_url_file: UrlFileOption = None,
    prefix: PrefixOption = None,
) -> None:
    """Delete a queue for good: its jobs, its dead letters, all its versions. Asks for its name.

    The same again finishes a deletion that was interrupted. Jobs that run meanwhile run to their end, but their results
    are refused. Producers are told that the queue does not exist.
    """
    given = chosen(redis_url, redis_url_file, prefix)

    async def look(store: Store) -> tuple[Topology | None, dict[str, int]]:
        topology = await store.read_topology(queue)
        if topology is None and await store.read_grave(queue) is None:
            raise UnknownQueue(queue)
        return topology, await held_jobs(store, topology) if topology is not None else {}

    async def act(store: Store) -> Deletion:
        return await delete_queue(store, queue, only_if_empty=only_if_empty)

    topology, held = with_store(given, look)
    if topology is not None:
        _warn_of_owner(topology)
    if dry_run:
        parts = 0 if topology is None else sum(each.partitions for each in topology.versions.values())
        _show(output, Deletion(queue, 0, held), parts)
        return
    if not yes:
        ask_for_name(f"delete queue {queue} with {_jobs(held)}", queue)
    _show(output, with_store(given, act))


def _warn_of_owner(topology: Topology) -> None:
    if owner := owner_name(topology):
        print(
            f"Warning: the queue belongs to the Queue object {owner}; while that exists, the operator creates it anew",
            file=sys.stderr,
        )


def _jobs(held: dict[str, int]) -> str:
    return ", ".join(f"{number} {state}" for state, number in held.items()) or "no jobs"


def _show(output: Format, deletion: Deletion, partitions: int | None = None) -> None:
    """Show what was deleted; ``partitions``: of a queue that is only counted, how many it has."""
    jobs = dict(deletion.jobs)
    data = {"queue": deletion.queue, "partitions_deleted": deletion.partitions, "jobs": jobs}
    shown = deletion.partitions if partitions is None else partitions
    show(output, data, ("NAME", "PARTITIONS", "JOBS"), [(deletion.queue, shown, _jobs(jobs))])
