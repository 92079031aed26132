"""``headrace status``: what a queue holds."""

from __future__ import annotations

from collections.abc import Sequence
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
from headrace.errors import UnknownQueue
from headrace.stores import Store
from headrace.stores.base import Counts
from headrace.topology import PartitionRef, Topology

_SIZES = ("ready", "scheduled", "retry", "leased", "parked", "dead")
_COLUMNS = ("NAME", "STATE", "PARTITIONS", "READY", "SCHEDULED", "RETRY", "LEASED", "PARKED", "DEAD", "OLDEST")


def status(
    queue: QueueArgument,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="One line per partition as well.")] = False,
    output: OutputOption = Format.TABLE,
    redis_url: UrlOption = None,
    redis_url_file: UrlFileOption = None,
    prefix: PrefixOption = None,
) -> None:
    """Show the number of jobs per state in each version of a queue.

    PARKED: no worker knew their type, see `headrace type list`. OLDEST: since its oldest ready job was due.
    """

    async def act(store: Store) -> tuple[Topology, dict[PartitionRef, Counts]]:
        topology = await store.read_topology(queue)
        if topology is None:
            raise UnknownQueue(queue)
        refs = [ref for version in sorted(topology.versions) for ref in topology.refs(version)]
        return topology, dict(zip(refs, await store.counts(refs), strict=True))

    topology, counts = with_store(chosen(redis_url, redis_url_file, prefix), act)
    versions = []
    rows: list[Sequence[object]] = []
    for number, version in sorted(topology.versions.items()):
        parts = {ref: counts[ref] for ref in topology.refs(number)}
        total = _total(list(parts.values()))
        rows.append((f"{queue}:{number}", version.state, version.partitions, *_row(total)))
        partitions = [
            {"partition": ref.partition, "state": each.state, **_total([each])} for ref, each in parts.items()
        ]
        if verbose:
            rows += [(f"{queue}:{ref.label}", each.state, None, *_row(_total([each]))) for ref, each in parts.items()]
        versions.append({"version": number, "state": version.state, **total, "partitions": partitions})
    show(output, {"queue": queue, "epoch": topology.epoch, "versions": versions}, _COLUMNS, rows)


def _total(counts: list[Counts]) -> dict[str, Any]:
    oldest = min((each.oldest_ready_at for each in counts if each.oldest_ready_at is not None), default=None)
    now = max(each.now for each in counts)
    return {
        **{name: sum(getattr(each, name) for each in counts) for name in (*_SIZES, "moving", "arrived")},
        "oldest_ready_age_ms": None if oldest is None else max(0, now - oldest),
    }


def _row(total: dict[str, Any]) -> tuple[object, ...]:
    return (*(total[name] for name in _SIZES), age(total["oldest_ready_age_ms"]))
