"""The queue that our side works on: one name, one job type, a topology made by the benchmark."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from importlib.metadata import version as distribution_version
from typing import Any, TypeVar

import uvloop

from headrace.lifecycle import promote
from headrace.stores.base import Store
from headrace.stores.memory import MemoryStore
from headrace.stores.redis import RedisStore
from headrace.topology import Topology

QUEUE = "bench"
TYPE = "noop"
VERSION = distribution_version("headrace")
LOOP = f"uvloop {distribution_version('uvloop')}, hiredis {distribution_version('hiredis')}"

T = TypeVar("T")


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in the event loop that workers have where uvloop is installed."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main)


def store_of(parameters: dict[str, Any]) -> Store:
    """Return a store on the server of the run, or an empty one in memory if ``store`` says so."""
    return MemoryStore() if parameters.get("store") == "memory" else RedisStore(str(parameters["url"]))


async def prepared(store: Store, parameters: dict[str, Any]) -> Topology:
    """Return the queue's topology.

    If there is none, it is made with ``versions`` (default 1) versions of ``partitions`` (default 1) each; all but the
    last of them drain, and stay although they are empty: an operator that is not there would remove them.
    """
    topology = await store.read_topology(QUEUE)
    if topology is not None:
        return topology
    versions = int(parameters.get("versions", 1))
    owner = {"name": QUEUE} if versions > 1 else None
    for version in range(1, versions + 1):
        topology = await promote(store, QUEUE, version, int(parameters.get("partitions", 1)), owner=owner)
    assert topology is not None
    return topology


async def left(store: Store, topology: Topology) -> int:
    """Return the jobs of the active version that are not finished."""
    return sum(counts.live for counts in await store.counts(topology.refs(topology.active)))
