"""The producer for code without an event loop, beside a worker."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from headrace import (
    App,
    Cancellation,
    Context,
    HeadraceError,
    QueueSettings,
    Retention,
    SyncProducer,
    WaitTimeout,
    Worker,
    WorkerSettings,
)
from headrace.lifecycle import promote
from headrace.stores.memory import MemoryStore
from headrace.topology import PartitionRef


def test_M15_results_are_waited_for_without_an_event_loop() -> None:
    app = App()

    @app.handler("add")
    async def add(ctx: Context, numbers: list[int]) -> int:
        return sum(numbers)

    store = MemoryStore()
    asyncio.run(promote(store, "sums", 1, 2, settings=QueueSettings(retention=Retention())))
    with SyncProducer(store.clone()) as producer:
        producer.enqueue("sums", "add", [1, 2], id="a")
        assert producer.status("sums", "a").state == "ready"

        async def work() -> None:
            worker = Worker(app, store, WorkerSettings(queues=("sums",)))
            working = asyncio.create_task(worker.run())
            await asyncio.to_thread(producer.wait_until_empty, "sums", timeout=30)
            await worker.stop()
            await working

        asyncio.run(work())
        assert producer.result("sums", "a") == 3
        assert producer.wait("sums", ["a"])["a"].ended
        assert [(each.id, each.state) for each in producer.watch("sums", ["a"])] == [("a", "succeeded")]
        assert producer.statuses("sums", ["b"])["b"].state == "unknown"
        producer.enqueue("sums", "add", [], id="c")
        with pytest.raises(WaitTimeout):
            producer.wait("sums", ["c"], timeout=0)


def test_M15_changes_are_watched_without_an_event_loop_and_jobs_cancelled() -> None:
    store = MemoryStore()
    asyncio.run(promote(store, "sums", 1, 2, settings=QueueSettings(retention=Retention())))
    with SyncProducer(store.clone()) as producer:
        producer.enqueue("sums", "add", [1], id="a", delay=3600)
        changes = producer.watch("sums", ["a"], timeout=30)
        assert next(changes).state == "scheduled"
        assert producer.cancel("sums", "a") == Cancellation("a", "scheduled", True)
        assert [each.state for each in changes] == ["unknown"]
        producer.enqueue("sums", "add", [1], id="b")
        left = producer.watch("sums", ["b"], timeout=30)
        assert next(left).state == "ready"
        left.close()
        unfinished = producer.watch("sums", ["b"], timeout=30)
        next(unfinished)
    with pytest.raises(HeadraceError, match="closed"):
        next(unfinished)


def test_M17_calls_of_many_threads_in_one_moment_travel_together_and_each_gets_its_own_answer() -> None:
    store = Noting()
    asyncio.run(promote(store, "sums", 1, 1))
    with SyncProducer(store) as producer:
        producer.enqueue("sums", "add", id="first")
        store.steps.clear()
        held = threading.Event()
        producer._loop.call_soon_threadsafe(held.wait)  # until all have called
        with ThreadPoolExecutor(32) as threads:
            calls = [threads.submit(producer.enqueue, "sums", "add", n, id=f"job-{n % 24}") for n in range(32)]
            while threads._work_queue.qsize() or len(producer._loop._ready) < 32:  # type: ignore[attr-defined]
                time.sleep(0.001)
            held.set()
            placed = [call.result(60) for call in calls]
    assert [job.id for job in placed] == [f"job-{n % 24}" for n in range(32)]
    assert sum(job.existing for job in placed) == 8
    assert sum(store.steps) == 32
    assert len(store.steps) <= 3  # a thread that was slow to call goes with the next one


class Noting(MemoryStore):
    """Notes how many jobs each enqueue step carries."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[int] = []

    async def enqueue(self, ref: PartitionRef, partitions: int, nonce: bytes, jobs: Any, *more: Any) -> Any:
        self.steps.append(len(jobs))
        return await super().enqueue(ref, partitions, nonce, jobs, *more)


_FORKS = """
import os, signal, sys

from headrace import HeadraceError, SyncProducer

producer = SyncProducer("memory://")
read, write = os.pipe()
if os.fork() == 0:
    signal.alarm(30)  # what hangs is to end
    try:
        producer.enqueue("emails", "send", 1)
    except HeadraceError as error:
        os.write(write, str(error).encode())
    producer.close()
    os._exit(0)
os.close(write)
with os.fdopen(read) as heard:
    print(heard.read())
print(os.waitstatus_to_exitcode(os.wait()[1]))
producer.close()
"""


def test_M15_after_a_fork_a_call_says_what_to_do_instead_of_waiting_for_ever() -> None:
    command = [sys.executable, "-W", "ignore", "-c", _FORKS]
    said, code = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout.splitlines()
    assert "made in another process" in said
    assert "after the fork" in said
    assert code == "0"  # to close it there does not wait either
