"""Workers and producers whose clock is minutes off: only the server's clock decides, and the error is a metric."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.request import urlopen

import pytest

from headrace import RetryPolicy, Store
from headrace.lifecycle import configure
from headrace.settings import QueueSettings
from headrace.stores import open_store
from headrace.topology import PartitionRef
from tests.cluster.guard import Guard
from tests.cluster.ports import free_ports
from tests.cluster.processes import Component
from tests.integration.worker.processes import ROOT, WRONG_CLOCK, Start, ended, notes, stamps, told_lost
from tests.integration.worker.support import QUEUE, empty, eventually, put, queue
from tests.services.redis import RedisServer

MINUTES = (600, -600)
RATE = 0.01
"""The server's clock may be slewed while a test runs, the monotonic one is not."""


@pytest.fixture
async def store(server: RedisServer, prefix: str) -> AsyncIterator[Store]:
    opened = open_store(server.url, prefix)
    yield opened
    await opened.close()


async def server_now(store: Store) -> int:
    (counts,) = await store.counts([PartitionRef(QUEUE, 1, 0)])
    return counts.now


@pytest.mark.parametrize("ahead", MINUTES)
async def test_J8_QC4_a_worker_with_a_wrong_clock_runs_delayed_jobs_at_their_time(
    store: Store, start: Start, tmp_path: Path, ahead: int
) -> None:
    producer = await queue(store)
    worker = start("wrong", clock_ahead=ahead)
    await eventually(lambda: "worker wrong-" in worker.log.read_text())
    began = time.monotonic()
    (job,) = await put(producer, "stamp", [0], delay=1.5)
    await eventually(lambda: empty(store))
    (ran,) = stamps(tmp_path)[job]
    assert ran - began >= 1.5 - RATE


@pytest.mark.parametrize("ahead", MINUTES)
async def test_J8_QC4_a_producer_with_a_wrong_clock_delays_by_the_servers(
    store: Store, server: RedisServer, prefix: str, start: Start, tmp_path: Path, process_guard: Guard, ahead: int
) -> None:
    await queue(store)
    start("right")
    began = time.monotonic()
    producer = Component(
        "producer",
        [sys.executable, "-m", "headrace", "job", "enqueue", QUEUE, "stamp", "0", "--id", "late", "--delay", "1.5"],
        log=tmp_path / "producer.log",
        guard=process_guard,
        env={
            "PATH": os.environ["PATH"],
            "PYTHONPATH": os.pathsep.join(map(str, (WRONG_CLOCK, ROOT))),
            "TEST_CLOCK_AHEAD": str(ahead),
            "HEADRACE_REDIS_URL": server.url,
            "HEADRACE_PREFIX": prefix,
        },
    )
    producer.start()
    assert await ended(producer) == 0
    await eventually(lambda: stamps(tmp_path))
    (ran,) = stamps(tmp_path)["late"]
    assert ran - began >= 1.5 - RATE


async def test_J8_workers_ten_minutes_apart_steal_no_lease_and_wait_for_retries(
    store: Store, start: Start, tmp_path: Path
) -> None:
    producer = await queue(store, partitions=2)
    await configure(store, QUEUE, QueueSettings(lease_ms=500, retry=RetryPolicy(strategy="linear", base_ms=1000)))
    workers = [start("ahead", "-c", "6", clock_ahead=600), start("behind", "-c", "6", clock_ahead=-600)]
    jobs = await put(producer, "wait", range(8))
    failing = await put(producer, "stamp", [2] * 4)
    await eventually(lambda: len(notes(tmp_path)) == 8)
    began = await server_now(store)

    async def leases_have_passed() -> bool:
        return await server_now(store) >= began + 2500

    await eventually(leases_have_passed)
    assert Counter(entry[2] for entry in notes(tmp_path)) == Counter(jobs)
    for name in ("ahead", "behind"):
        (tmp_path / f"go-{name}").touch()
    await eventually(lambda: empty(store))
    for job in failing:
        first, second, third = stamps(tmp_path)[job]
        assert min(second - first, third - second) >= 1.0 - RATE
    for worker in workers:
        worker.signal(signal.SIGTERM)
        assert await ended(worker) == 0
        assert told_lost(worker) == 0


@pytest.mark.parametrize("ahead", MINUTES)
async def test_QC4_the_error_of_a_clock_is_a_metric(store: Store, start: Start, tmp_path: Path, ahead: int) -> None:
    (port,) = free_ports(1)
    producer = await queue(store)
    start("wrong", clock_ahead=ahead, HEALTH_PORT=port, METRICS="prometheus", POD_IP="127.0.0.1")
    await put(producer, "note", [0])
    await eventually(lambda: notes(tmp_path))

    def shown() -> float | None:
        try:
            with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
                lines = answer.read().decode().splitlines()
        except OSError:
            return None
        return next(
            (float(line.split()[1]) for line in lines if line.startswith("headrace_clock_ahead_seconds ")), None
        )

    found = await eventually(lambda: asyncio.to_thread(shown))
    assert abs(found - ahead) < 60
