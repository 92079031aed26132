"""The queue that our side works on: one name, one job type, a topology made by the benchmark."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from importlib.metadata import version
from typing import Any, TypeVar

import uvloop

from headrace.lifecycle import promote
from headrace.stores.base import Store
from headrace.stores.redis import RedisStore
from headrace.topology import Topology

QUEUE = "bench"
TYPE = "noop"
VERSION = version("headrace")
LOOP = f"uvloop {version('uvloop')}, hiredis {version('hiredis')}"

T = TypeVar("T")


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in the event loop that workers have where uvloop is installed."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main)


def store_of(parameters: dict[str, Any]) -> RedisStore:
    """Return a store on the server of the run."""
    return RedisStore(str(parameters["url"]))


async def prepared(store: Store, parameters: dict[str, Any]) -> Topology:
    """Return the queue's topology; it is made with ``partitions`` (default 1) partitions if there is none."""
    topology = await store.read_topology(QUEUE)
    return topology or await promote(store, QUEUE, 1, int(parameters.get("partitions", 1)))


async def left(store: Store, topology: Topology) -> int:
    """Return the jobs of the active version that are not finished."""
    return sum(counts.live for counts in await store.counts(topology.refs(topology.active)))
