"""``headrace queue list`` and ``describe``: which queues there are, and all that one of them is."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any, NamedTuple

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
from headrace.cli.status import is_fresh
from headrace.cli.topology import QueueArgument
from headrace.cli.watching import WatchOption, watched
from headrace.errors import UnknownQueue
from headrace.pausing import owner_name, state_of
from headrace.statistics import summarise
from headrace.stores import Store
from headrace.stores.base import Statistics, WorkerEntry
from headrace.topology import Topology

_SIZES = ("ready", "scheduled", "retry", "leased", "parked", "dead")
_COLUMNS = ("NAME", "STATE", "VERSION", "PARTITIONS", *(name.upper() for name in _SIZES), "OLDEST", "WORKERS", "OWNER")


class Overview(NamedTuple):
    """A queue, its sums and its workers."""

    topology: Topology
    statistics: Statistics | None
    workers: list[WorkerEntry]

    @property
    def state(self) -> str:
        """What it does: running, paused, draining (takes no jobs, runs the rest) or being deleted."""
        return state_of(self.topology)

    @property
    def depth(self) -> dict[str, int]:
        """Jobs by state, over all versions."""
        depths = self.statistics.versions.values() if self.statistics else ()
        return {name: sum(getattr(depth, name) for depth in depths) for name in _SIZES}

    @property
    def oldest_ms(self) -> int | None:
        """Since when its oldest ready job has been due, ms."""
        if self.statistics is None:
            return None
        times = [each.oldest_ready_at for each in self.statistics.versions.values() if each.oldest_ready_at is not None]
        return max(0, self.statistics.now - min(times)) if times else None

    def data(self) -> dict[str, Any]:
        """Return all of it, as JSON holds it."""
        topology = self.topology
        return {
            "name": topology.queue,
            "state": self.state,
            "active": topology.active,
            "partitions": topology.partitions,
            "depth": self.depth,
            "oldest_ready_age_ms": self.oldest_ms,
            "workers": len(self.workers),
            "owner": owner_name(topology) or None,
        }

    def row(self) -> tuple[object, ...]:
        """Return it as a line of a table."""
        topology = self.topology
        sizes = (self.depth[name] for name in _SIZES)
        version = (topology.active, topology.partitions)
        return (
            *(topology.queue, self.state, *version, *sizes, age(self.oldest_ms), len(self.workers)),
            owner_name(topology) or None,
        )


async def overview(store: Store, queue: str) -> Overview | None:
    """Look at one queue; None if there is none. What its leader has summed up is taken, if it is fresh."""
    topology = await store.read_topology(queue)
    if topology is None:
        return None
    statistics = await store.read_stats(queue)
    if statistics is None or not is_fresh(statistics, topology):
        try:
            statistics = await summarise(store, queue)
        except UnknownQueue:
            return None
    return Overview(topology, statistics, await store.workers(queue))


def list_queues(
    watch: WatchOption = False,
    output: OutputOption = Format.TABLE,
    redis_url: UrlOption = None,
    redis_url_file: UrlFileOption = None,
    prefix: PrefixOption = None,
) -> None:
    """Show every queue under the prefix: its active version, its jobs by state, its workers, its Queue object."""

    def look() -> None:
        async def act(store: Store) -> list[Overview]:
            found = [await overview(store, queue) for queue in await store.queues()]
            return [each for each in found if each is not None]

        found = with_store(chosen(redis_url, redis_url_file, prefix), act)
        show(output, [each.data() for each in found], _COLUMNS, [each.row() for each in found])

    watched(look, watch)


def describe_queue(
    queue: QueueArgument,
    output: OutputOption = Format.TABLE,
    redis_url: UrlOption = None,
    redis_url_file: UrlFileOption = None,
    prefix: PrefixOption = None,
) -> None:
    """Show all of one queue: versions, settings in force, jobs by state, counters, workers, who owns it."""

    async def act(store: Store) -> tuple[Overview, dict[str, int]]:
        found, parked = await asyncio.gather(overview(store, queue), store.parked_partitions(queue))
        if found is None:
            raise UnknownQueue(queue)
        types: dict[str, int] = {}
        for ref in parked:
            for kind, number in (await store.parked(ref)).items():
                types[kind] = types.get(kind, 0) + number
        return found, types

    found, parked = with_store(chosen(redis_url, redis_url_file, prefix), act)
    stored = json.loads(found.topology.to_json())
    settings = found.topology.settings.model_dump(mode="json", exclude_none=True)
    counters = dict(found.statistics.counters) if found.statistics is not None else {}
    data = found.data() | {
        "epoch": found.topology.epoch,
        "versions": stored["versions"],
        "settings": settings,
        "counters": counters,
        "parked_types": parked,
        "worker_names": [each.worker for each in found.workers],
    }
    rows: list[tuple[object, ...]] = [
        (name.upper(), age(value) if name == "oldest_ready_age_ms" else _line(value))
        for name, value in data.items()
        if value not in (None, {}, [])
    ]
    show(output, data, ("FIELD", "VALUE"), rows)


def _line(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value))
    if isinstance(value, dict):
        return ", ".join(f"{name}={_value(each)}" for name, each in _flat(value))
    return str(value)


def _value(value: object) -> str:
    return json.dumps(value) if isinstance(value, bool | list) or value is None else str(value)


def _flat(values: dict[str, Any]) -> Iterator[tuple[str, object]]:
    """Yield the values of nested mappings under dotted names."""
    for name, value in values.items():
        if isinstance(value, dict):
            yield from ((f"{name}.{inner}", each) for inner, each in _flat(value))
        else:
            yield name, value
