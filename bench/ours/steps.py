"""Our store alone, without worker: the steps of a job's life through the Store protocol."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable
from functools import partial
from importlib.metadata import version as distribution_version
from statistics import median
from typing import Any, TypeVar

import redis.asyncio as redis

from bench.ours.plain import PlainStore
from bench.ours.queue import LOOP, QUEUE, TYPE, VERSION, prepared, run, store_of
from bench.peers.python.meter import payload
from headrace.envelope import encode_body
from headrace.ids import generate_id, partition_of
from headrace.stores.base import LANE, Accepted, NewJob, Settled, Store
from headrace.topology import PartitionRef, Topology

T = TypeVar("T")

LEASE_MS = 30_000
DUE_SECONDS = 0.0025
LIFECYCLE = ("enqueue", "promote", "lease", "renew", "complete")


def cycle(parameters: dict[str, Any]) -> dict[str, Any]:
    """Enqueue, claim and acknowledge ``jobs`` jobs in batches of ``batch``, with ``callers`` batches under way.

    Reports the CPU of the server's main thread over exactly this.
    """
    return run(_cycle(parameters))


def lifecycle(parameters: dict[str, Any]) -> dict[str, Any]:
    """Take ``jobs`` delayed jobs, one by one, through every step of a life; ``values_ms``: median of each step."""
    return run(_lifecycle(parameters))


async def _cycle(parameters: dict[str, Any]) -> dict[str, Any]:
    store = store_of(parameters)
    topology = await prepared(store, parameters)
    ref = topology.refs(topology.active)[0]
    jobs, batch, callers = (int(parameters[name]) for name in ("jobs", "batch", "callers"))
    body = encode_body(TYPE, payload(parameters))
    rounds = max(1, jobs // (batch * callers))
    await asyncio.gather(*(_caller(store, ref, topology, body, batch, 2, f"warm{n}") for n in range(callers)))
    server = redis.Redis.from_url(parameters["url"], protocol=2)
    before, cpu, begun = await _main_thread(server), time.process_time(), time.monotonic()
    await asyncio.gather(*(_caller(store, ref, topology, body, batch, rounds, f"w{n}") for n in range(callers)))
    seconds, used = time.monotonic() - begun, time.process_time() - cpu
    redis_cpu = await _main_thread(server) - before
    await server.aclose()
    (counts,) = await store.counts([ref])
    if counts.live:
        raise RuntimeError(f"{counts.live} jobs are left: {counts.nonempty()}")
    await store.close()
    return {
        "jobs": rounds * batch * callers,
        "seconds": seconds,
        "cpu_seconds": used,
        "redis_cpu_seconds": redis_cpu,
        "version": VERSION,
        "settings": {"client": LOOP, "calls": "Store.enqueue, Store.claim with the acks of the batch before"},
    }


async def _caller(
    store: Store, ref: PartitionRef, topology: Topology, body: bytes, batch: int, rounds: int, name: str
) -> None:
    """Enqueue a batch, claim as many, and acknowledge with the next claim; several callers share a partition."""
    acks: list[Settled] = []
    for number in range(rounds):
        fresh = [NewJob(LANE + generate_id()[1], 0, body) for _ in range(batch)]
        accepted = await store.enqueue(ref, topology.partitions, os.urandom(12), fresh)
        if not isinstance(accepted, Accepted):
            raise RuntimeError(f"the partition refused: {accepted}")
        claim = await store.claim(ref, name, number, batch, LEASE_MS, acks)
        acks = [Settled(job.key, claim.token) for job in claim.jobs]
    await store.ack(ref, acks)


async def _main_thread(server: redis.Redis) -> float:
    cpu = await server.info("cpu")
    return float(cpu["used_cpu_user_main_thread"]) + float(cpu["used_cpu_sys_main_thread"])


class Stopwatch:
    """Notes the times of each step, in seconds."""

    def __init__(self) -> None:
        self.spent: dict[str, list[float]] = {step: [] for step in LIFECYCLE}

    async def timed(self, step: str, doing: Awaitable[T]) -> T:
        """Wait for one step of one job."""
        begun = time.perf_counter()
        done = await doing
        self.spent[step].append(time.perf_counter() - begun)
        return done


async def _lifecycle(parameters: dict[str, Any]) -> dict[str, Any]:
    jobs, of = int(parameters["jobs"]), VERSION
    if parameters.get("store") == "plain":
        plain, of = PlainStore(parameters["url"]), f"on redis-py {distribution_version('redis')}"
        live, close = partial(_plain_life, plain), plain.close
    else:
        store = store_of(parameters)
        topology = await prepared(store, parameters)
        body = encode_body(TYPE, payload(parameters))
        live, close = partial(_life, store, topology, body), store.close
    warm_up = max(1, jobs // 20)
    for number in range(warm_up):
        await live(Stopwatch(), number)
    watch, begun, cpu = Stopwatch(), time.monotonic(), time.process_time()
    for number in range(warm_up, warm_up + jobs):
        await live(watch, number)
    seconds, used = time.monotonic() - begun, time.process_time() - cpu
    await close()
    return {
        "jobs": jobs,
        "seconds": seconds,
        "cpu_seconds": used,
        "values_ms": [median(watch.spent[step]) * 1000 for step in LIFECYCLE],
        "version": of,
        "settings": {"client": LOOP, "lease_ms": LEASE_MS, "under way": "one call"},
    }


async def _life(store: Store, topology: Topology, body: bytes, watch: Stopwatch, number: int) -> None:
    """One job, delayed by 1 ms, from enqueue to complete; the time until it is due is not counted."""
    job_id, stored = generate_id()
    key = LANE + stored
    ref = PartitionRef(QUEUE, topology.active, partition_of(job_id, topology.partitions))
    fresh = [NewJob(key, -1, body)]
    await watch.timed("enqueue", store.enqueue(ref, topology.partitions, number.to_bytes(8, "big"), fresh))
    await asyncio.sleep(DUE_SECONDS)
    promoted = await watch.timed("promote", store.promote_due(ref))
    claim = await watch.timed("lease", store.claim(ref, "w", number, 1, LEASE_MS))
    lease = [Settled(key, claim.token)]
    refused = await watch.timed("renew", store.renew(ref, lease, LEASE_MS))
    refused += await watch.timed("complete", store.ack(ref, lease))
    if promoted != 1 or len(claim.jobs) != 1 or refused:
        raise RuntimeError(f"a step did nothing: promoted {promoted}, leased {len(claim.jobs)}, refused {refused}")


async def _plain_life(store: PlainStore, watch: Stopwatch, number: int) -> None:
    job_id = f"job-{number}"
    await watch.timed("enqueue", store.enqueue(job_id, payload({}), delay_ms=1))
    await asyncio.sleep(DUE_SECONDS)
    promoted = await watch.timed("promote", store.promote_due())
    leased = await watch.timed("lease", store.lease(LEASE_MS))
    renewed = await watch.timed("renew", store.renew(job_id, LEASE_MS))
    completed = await watch.timed("complete", store.complete(job_id))
    if (promoted, leased, renewed, completed) != (job_id, job_id, True, True):
        raise RuntimeError(f"a step did nothing: {promoted}, {leased}, {renewed}, {completed}")
