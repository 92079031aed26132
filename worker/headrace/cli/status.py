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
from headrace.cli.watching import WatchOption, watched
from headrace.errors import UnknownQueue
from headrace.pausing import STATES, state_of
from headrace.stores import Store
from headrace.stores.base import Counts, Statistics
from headrace.topology import PartitionRef, Topology

FRESH_MS = 3000
_SIZES = ("ready", "scheduled", "retry", "leased", "parked", "dead")
_COLUMNS = ("NAME", "STATE", "PARTITIONS", "READY", "SCHEDULED", "RETRY", "LEASED", "PARKED", "DEAD", "OLDEST")


def status(
    queue: QueueArgument,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="One line per partition as well.")] = False,
    watch: WatchOption = False,
    output: OutputOption = Format.TABLE,
    redis_url: UrlOption = None,
    redis_url_file: UrlFileOption = None,
    prefix: PrefixOption = None,
) -> None:
    """Show the number of jobs per state in each version of a queue.

    PARKED: no worker knew their type, see `headrace type list`. OLDEST: since its oldest ready job was due. Without
    --verbose, what the leader of the workers has summed up within the last 3 s is shown; else every partition is read.
    STATE also says if the queue is paused, is being deleted, or takes no jobs while it runs the rest (draining).
    """

    def look() -> None:
        at_a_glance = output is Format.TABLE and not verbose

        async def act(store: Store) -> tuple[Topology, Statistics | None, dict[PartitionRef, Counts]]:
            topology = await store.read_topology(queue)
            if topology is None:
                raise UnknownQueue(queue)
            statistics = await store.read_stats(queue)
            if at_a_glance and statistics is not None and is_fresh(statistics, topology):
                return topology, statistics, {}
            refs = [ref for version in sorted(topology.versions) for ref in topology.refs(version)]
            return topology, statistics, dict(zip(refs, await store.counts(refs), strict=True))

        topology, statistics, counts = with_store(chosen(redis_url, redis_url_file, prefix), act)
        if not counts and statistics is not None:
            _show_statistics(topology, statistics)
            return
        versions = []
        rows: list[Sequence[object]] = []
        for number, version in sorted(topology.versions.items()):
            parts = {ref: counts[ref] for ref in topology.refs(number)}
            total = _total(list(parts.values()))
            rows.append((f"{queue}:{number}", _told(version.state, topology), version.partitions, *_row(total)))
            partitions = [
                {"partition": ref.partition, "state": each.state, **_total([each])} for ref, each in parts.items()
            ]
            if verbose:
                rows += [
                    (f"{queue}:{ref.label}", each.state, None, *_row(_total([each]))) for ref, each in parts.items()
                ]
            versions.append({"version": number, "state": version.state, **total, "partitions": partitions})
        counters = dict(statistics.counters) if statistics is not None else {}
        state = state_of(topology)
        data = {"queue": queue, "state": state, "epoch": topology.epoch, "versions": versions, "counters": counters}
        show(output, data, _COLUMNS, rows)

    watched(look, watch)


def is_fresh(statistics: Statistics, topology: Topology) -> bool:
    """Whether statistics say what a person expects to see now."""
    return statistics.age_ms <= FRESH_MS and statistics.epoch == topology.epoch


def _told(state: str, topology: Topology) -> str:
    """Return the state of a version, and what the queue does if it does not run."""
    does = state_of(topology)
    return state if does == STATES["none"] else f"{state}, {does}"


def _show_statistics(topology: Topology, statistics: Statistics) -> None:
    rows = []
    for number, depth in sorted(statistics.versions.items()):
        oldest = None if depth.oldest_ready_at is None else max(0, statistics.now - depth.oldest_ready_at)
        sizes = (getattr(depth, name) for name in _SIZES)
        rows.append((f"{topology.queue}:{number}", _told(depth.state, topology), depth.partitions, *sizes, age(oldest)))
    show(Format.TABLE, None, _COLUMNS, rows)


def _total(counts: list[Counts]) -> dict[str, Any]:
    oldest = min((each.oldest_ready_at for each in counts if each.oldest_ready_at is not None), default=None)
    now = max(each.now for each in counts)
    return {
        **{name: sum(getattr(each, name) for each in counts) for name in (*_SIZES, "moving", "arrived")},
        "oldest_ready_age_ms": None if oldest is None else max(0, now - oldest),
    }


def _row(total: dict[str, Any]) -> tuple[object, ...]:
    return (*(total[name] for name in _SIZES), age(total["oldest_ready_age_ms"]))
