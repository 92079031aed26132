"""Our store alone, without worker: the steps of a job's life through the Store protocol."""

from __future__ import annotations

import asyncio
import os
import time
from typing import Any

import redis.asyncio as redis

from bench.ours.queue import LOOP, QUEUE, TYPE, VERSION, prepared, run, store_of
from bench.peers.python.meter import payload
from headrace.envelope import encode_body
from headrace.ids import generate_id, partition_of
from headrace.stores.base import LANE, Accepted, NewJob, Settled, Store
from headrace.topology import PartitionRef, Topology

LEASE_MS = 30_000
LIFECYCLE = ("enqueue", "promote", "lease", "renew", "complete")


def cycle(parameters: dict[str, Any]) -> dict[str, Any]:
    """Enqueue, claim and acknowledge ``jobs`` jobs in batches of ``batch``, with ``callers`` batches under way.

    Reports the CPU of the server's main thread over exactly this.
    """
    return run(_cycle(parameters))


def lifecycle(parameters: dict[str, Any]) -> dict[str, Any]:
    """Take ``jobs`` delayed jobs, one by one, through every step of a life; ``values_ms``: mean of each step."""
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


async def _lifecycle(parameters: dict[str, Any]) -> dict[str, Any]:
    store = store_of(parameters)
    topology = await prepared(store, parameters)
    jobs, body = int(parameters["jobs"]), encode_body(TYPE, payload(parameters))
    warm_up = max(1, jobs // 20)
    spent = dict.fromkeys(LIFECYCLE, 0.0)
    begun = cpu = 0.0
    for number in range(-warm_up, jobs):
        if number == 0:
            spent = dict.fromkeys(LIFECYCLE, 0.0)
            begun, cpu = time.monotonic(), time.process_time()
        await _life(store, topology, body, number + warm_up, spent)
    seconds, used = time.monotonic() - begun, time.process_time() - cpu
    await store.close()
    return {
        "jobs": jobs,
        "seconds": seconds,
        "cpu_seconds": used,
        "values_ms": [spent[step] * 1000 / jobs for step in LIFECYCLE],
        "version": VERSION,
    }


async def _life(store: Store, topology: Topology, body: bytes, number: int, spent: dict[str, float]) -> None:
    """One job, delayed by 1 ms, from enqueue to complete; the time until it is due is not counted."""
    job_id, stored = generate_id()
    key = LANE + stored
    ref = PartitionRef(QUEUE, topology.active, partition_of(job_id, topology.partitions))
    clock = time.perf_counter
    times = [clock()]
    await store.enqueue(ref, topology.partitions, number.to_bytes(8, "big"), [NewJob(key, -1, body)])
    times.append(clock())
    await asyncio.sleep(0.0025)
    resumed = clock()
    promoted = await store.promote_due(ref)
    times.append(clock())
    claim = await store.claim(ref, "w", number, 1, LEASE_MS)
    times.append(clock())
    lease = [Settled(key, claim.token)]
    refused = await store.renew(ref, lease, LEASE_MS)
    times.append(clock())
    refused += await store.ack(ref, lease)
    times.append(clock())
    if promoted != 1 or len(claim.jobs) != 1 or refused:
        raise RuntimeError(f"a step did nothing: promoted {promoted}, leased {len(claim.jobs)}, refused {refused}")
    starts = [times[0], resumed, *times[2:5]]
    for step, start, end in zip(LIFECYCLE, starts, times[1:], strict=True):
        spent[step] += end - start
