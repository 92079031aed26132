"""Jobs of a queue, put in and worked off by the tests themselves."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

import redis

from headrace.producer import JobSpec
from headrace.stores import open_store
from headrace.stores.base import Settled, Store
from headrace.sync_producer import SyncProducer
from headrace.topology import Topology

T = TypeVar("T")


def on_store(url: str, action: Callable[[Store], Awaitable[T]]) -> T:
    """Run ``action`` with a store of its own."""

    async def run() -> T:
        store = open_store(url)
        try:
            return await action(store)
        finally:
            await store.close()

    return asyncio.run(run())


def topology(url: str, queue: str) -> Topology | None:
    return on_store(url, lambda store: store.read_topology(queue))


def known_topology(url: str, queue: str) -> Topology:
    found = topology(url, queue)
    if found is None:
        raise LookupError(f"queue {queue} has no topology")
    return found


def remove_topology(url: str, queue: str) -> None:
    with redis.Redis.from_url(url) as connection:
        assert connection.delete(f"{{headrace:{queue}}}:topology") == 1


def put(url: str, queue: str, names: Iterable[str], kind: str = "count", payload: object = None) -> None:
    with SyncProducer(url) as producer:
        producer.enqueue_many(queue, [JobSpec(kind, payload, id=name) for name in names])


async def work_off(store: Store, queue: str, version: int) -> int:
    """Claim and acknowledge everything that is ready in a version; the number of jobs."""
    current = await store.read_topology(queue)
    assert current is not None
    done = 0
    for number, ref in enumerate(current.refs(version)):
        for turn in range(100):
            claim = await store.claim(ref, f"test-{number}", turn, 100, 30_000)
            if not claim.jobs:
                break
            assert await store.ack(ref, [Settled(job.key, claim.token) for job in claim.jobs]) == []
            done += len(claim.jobs)
    return done


def open_gate(url: str, queue: str) -> None:
    """Let the jobs of type ``gated`` end."""
    with redis.Redis.from_url(url) as connection:
        connection.set(f"gate:{queue}", "open")


def let_go(url: str, queue: str, *names: str) -> None:
    """Let jobs of type ``held`` end."""
    with redis.Redis.from_url(url) as connection:
        for name in names:
            connection.set(f"gate:{queue}:{name}", "open")


def starts(url: str, queue: str) -> int:
    """How many runs of jobs of types ``held`` and ``nap`` have begun, whatever became of them."""
    with redis.Redis.from_url(url) as connection:
        return int(connection.get(f"starts:{queue}") or 0)


def runs(url: str, queue: str) -> dict[str, int]:
    """How often each job was run by the workers of the tests, by ``id@vN``."""
    with redis.Redis.from_url(url, decode_responses=True) as connection:
        found = connection.hgetall(f"runs:{queue}")
        assert isinstance(found, dict)
        return {name: int(count) for name, count in found.items()}


def lasting_keys(url: str, queue: str) -> set[str]:
    """The keys of a queue that do not pass by themselves."""
    with redis.Redis.from_url(url, decode_responses=True) as connection:
        names = list(connection.scan_iter(f"{{headrace:{queue}*", count=1000))
        return {name for name in names if connection.ttl(name) == -1}
