"""Ids that are made for jobs: no two callers get the same, and no job takes the place of another one."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

from headrace import Producer, SyncProducer
from headrace.stores.base import Store
from tests.conformance.steps import QUEUE, created, run_everything
from tests.services.redis_setups import RedisSetups

JOBS = 25
PROCESS = """
import sys, threading
from headrace import SyncProducer
url, prefix, queue, jobs = sys.stdin.read().split("\\n")
ids = []
with SyncProducer(url, prefix=prefix) as producer:
    def enqueue():
        ids.extend([producer.enqueue(queue, "send", n).id for n in range(int(jobs))])
    threads = [threading.Thread(target=enqueue) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
print(*ids)
"""


def _in_a_thread(store: Store) -> list[str]:
    with SyncProducer(store) as producer:
        return [producer.enqueue(QUEUE, "send", n).id for n in range(JOBS)]


async def _in_a_process(url: str, prefix: str) -> list[str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        PROCESS,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    async with asyncio.timeout(120):
        output, _ = await process.communicate("\n".join((url, prefix, QUEUE, str(JOBS))).encode())
    return output.decode().split()


async def test_M17_ids_are_unique_under_tasks_threads_and_processes(
    store: Store, backend: str, prefix: str, redis_setups: RedisSetups
) -> None:
    """Memory is of one process."""
    topology = await created(store, 4)
    threads = [asyncio.to_thread(_in_a_thread, store.clone()) for _ in range(4)]
    processes = [] if backend == "memory" else [_in_a_process(redis_setups.url(backend), prefix) for _ in range(2)]
    producer = Producer(store)
    own = asyncio.gather(*(producer.enqueue(QUEUE, "send", n) for n in range(JOBS)))
    made = [each for ids in await asyncio.gather(*threads, *processes) for each in ids] + [job.id for job in await own]
    assert len(made) == len(set(made)) == (5 + 2 * len(processes)) * JOBS
    assert sorted(await run_everything(store, topology)) == sorted(made)
