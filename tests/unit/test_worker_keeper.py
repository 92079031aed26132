"""What keeps leases and health going is itself kept going, and ends when the worker does."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from headrace import App, Context, Producer, Worker, WorkerSettings
from headrace.lifecycle import promote
from headrace.stores.memory import MemoryStore
from headrace.topology import PartitionRef, Topology
from headrace.worker import keeper, vitals
from headrace.worker.health import HealthServer
from headrace.worker.leases import Batch, LeaseTable
from headrace.worker.restarts import keep_going
from tests.unit.test_worker_parts import ask

QUEUE = "emails"
REF = PartitionRef(QUEUE, 1, 0)


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    yield
    assert [each for each in threading.enumerate() if each.name == "headrace-keeper"] == []


async def until(holds: Callable[[], Any]) -> None:
    async with asyncio.timeout(20):
        while not holds():
            await asyncio.sleep(0.005)


class Watched(MemoryStore):
    """Counts the renewals of leases, and the clones that are open; the topology can be withheld."""

    renewals = 0
    open = 0
    reads = 0
    withheld = False

    def clone(self) -> MemoryStore:
        original = self

        class Clone(type(MemoryStore.clone(self))):  # type: ignore[misc]
            async def renew(self, *args: Any) -> list[int]:
                original.renewals += 1
                return await super().renew(*args)  # type: ignore[no-any-return]

            async def close(self) -> None:
                original.open -= 1

        clone = MemoryStore.clone(self)
        clone.__class__ = Clone
        original.open += 1
        return clone

    async def read_topology(self, queue: str) -> Topology | None:
        self.reads += 1
        if self.withheld:
            await asyncio.Event().wait()
        return await super().read_topology(queue)


def waiting(may_end: asyncio.Event) -> App:
    app = App()

    @app.handler("send")
    async def send(ctx: Context, payload: Any) -> None:
        await may_end.wait()

    return app


async def test_leases_are_renewed_again_after_an_error_that_nobody_foresaw(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store, may_end, defects = Watched(), asyncio.Event(), 0
    batches = LeaseTable.batches

    def defective(self: LeaseTable) -> list[Batch]:
        nonlocal defects
        if self.held and defects < 3:
            defects += 1
            raise RuntimeError("a defect")
        return batches(self)

    monkeypatch.setattr(LeaseTable, "batches", defective)
    await promote(store, QUEUE, 1, 1)
    await Producer(store).enqueue(QUEUE, "send")
    worker = Worker(waiting(may_end), store, WorkerSettings(queues=(QUEUE,), lease_ms=600))
    running = asyncio.create_task(worker.run())
    try:
        await until(lambda: defects == 3)
        renewals = store.renewals
        await until(lambda: store.renewals > renewals + 2)
    finally:
        may_end.set()
        await worker.stop()
        await running
    assert caplog.text.count("the lease keeper failed unexpectedly and is started again") == 3


async def test_a_keeper_that_always_fails_is_not_healthy(monkeypatch: pytest.MonkeyPatch, unused_tcp_port: int) -> None:
    def defective(self: LeaseTable) -> list[Batch]:
        raise RuntimeError("a defect")

    monkeypatch.setattr(LeaseTable, "batches", defective)
    monkeypatch.setattr(vitals, "STALLED_SECONDS", 0.3)
    settings = WorkerSettings(queues=(QUEUE,), health_host="127.0.0.1", health_port=unused_tcp_port)
    worker = Worker(waiting(asyncio.Event()), MemoryStore(), settings)
    running = asyncio.create_task(worker.run())
    try:
        await worker.started.wait()
        async with asyncio.timeout(20):
            while True:
                try:
                    status, facts = await ask(unused_tcp_port, b"GET /healthz HTTP/1.1\r\n\r\n")
                except (OSError, IndexError):  # not there yet, or no answer
                    continue
                if status == 503:
                    break
                await asyncio.sleep(0.01)
        assert facts["lease_cycle_age_seconds"] >= 0.3
    finally:
        await worker.stop()
        await running


async def test_the_health_server_is_started_again(
    monkeypatch: pytest.MonkeyPatch, unused_tcp_port: int, caplog: pytest.LogCaptureFixture
) -> None:
    run, defects = HealthServer.run, 0

    async def defective(self: HealthServer) -> None:
        nonlocal defects
        if defects < 2:
            defects += 1
            raise RuntimeError("a defect")
        await run(self)

    monkeypatch.setattr(HealthServer, "run", defective)
    settings = WorkerSettings(queues=(QUEUE,), health_host="127.0.0.1", health_port=unused_tcp_port)
    worker = Worker(waiting(asyncio.Event()), MemoryStore(), settings)
    running = asyncio.create_task(worker.run())
    status = 0
    try:
        async with asyncio.timeout(20):
            while status != 200:
                try:
                    status, _ = await ask(unused_tcp_port, b"GET /healthz HTTP/1.1\r\n\r\n")
                except OSError:
                    await asyncio.sleep(0.01)
    finally:
        await worker.stop()
        await running
    assert caplog.text.count("what runs beside the lease keeper failed unexpectedly and is started again") == 2


async def test_a_loop_that_is_cancelled_by_nobody_here_starts_again(caplog: pytest.LogCaptureFixture) -> None:
    runs = 0

    async def loop() -> None:
        nonlocal runs
        runs += 1
        if runs == 1:
            raise asyncio.CancelledError
        await asyncio.Event().wait()

    task = asyncio.create_task(keep_going("a loop", loop))
    await until(lambda: runs == 2)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert task.cancelled()
    assert "a loop was cancelled by nobody here" in caplog.text


async def test_a_worker_that_is_cancelled_before_it_claims_leaves_nothing(unused_tcp_port: int) -> None:
    store = Watched()
    store.withheld = True
    settings = WorkerSettings(queues=(QUEUE,), health_host="127.0.0.1", health_port=unused_tcp_port)
    running = asyncio.create_task(Worker(waiting(asyncio.Event()), store, settings).run())
    await until(lambda: store.reads)
    assert store.open == 3
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert running.cancelled()
    assert store.open == 0
    with pytest.raises(OSError, match="Connect call failed"):
        await asyncio.open_connection("127.0.0.1", unused_tcp_port)


async def test_a_worker_that_is_cancelled_again_while_it_winds_down_leaves_nothing() -> None:
    store, started = Watched(), asyncio.Event()
    app = App()

    @app.handler("send")
    async def send(ctx: Context, payload: Any) -> None:
        started.set()
        await asyncio.Event().wait()

    await promote(store, QUEUE, 1, 1)
    await Producer(store).enqueue(QUEUE, "send")
    worker = Worker(app, store, WorkerSettings(queues=(QUEUE,), grace_seconds=3600))
    before = asyncio.all_tasks()
    running = asyncio.create_task(worker.run())
    await started.wait()
    worker.request_stop()
    for _ in range(3):
        await asyncio.sleep(0.01)
        running.cancel()
    async with asyncio.timeout(20):
        await asyncio.wait([running])
    assert running.cancelled()
    assert store.open == 0
    assert (await store.counts([REF]))[0].nonempty() == {"ready": 1}
    assert asyncio.all_tasks() == before


async def test_a_keeper_that_does_not_end_is_left_behind(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(keeper, "JOIN_SECONDS", 0.1)
    may_end = threading.Event()
    closed = threading.Event()

    class Hanging(MemoryStore):
        async def close(self) -> None:
            closed.set()
            may_end.wait(20)

    class Original(MemoryStore):
        clones = 0

        def clone(self) -> MemoryStore:
            self.clones += 1
            return Hanging() if self.clones == 1 else MemoryStore()  # the keeper's is the first

    worker = Worker(waiting(asyncio.Event()), Original(), WorkerSettings(queues=(QUEUE,)))
    running = asyncio.create_task(worker.run())
    await worker.started.wait()
    async with asyncio.timeout(10):
        await worker.stop()
        await running
    assert closed.is_set()
    assert "the lease keeper did not end within 0.1 s and is left behind" in caplog.text
    may_end.set()
    for thread in threading.enumerate():
        if thread.name == "headrace-keeper":
            await asyncio.to_thread(thread.join, 10)
