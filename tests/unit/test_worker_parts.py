"""The small parts of the worker: one timer for all deadlines, patience with a store, health."""

from __future__ import annotations

import asyncio
import json
import logging
import random
import socket
from collections import Counter
from dataclasses import dataclass
from typing import Any, cast

import pytest

from headrace import InvalidInput, StoreUnavailable
from headrace.topology import PartitionRef
from headrace.worker.cancellation import cancel_all
from headrace.worker.deadlines import Deadlines
from headrace.worker.health import Health, HealthServer
from headrace.worker.leases import Execution
from headrace.worker.outage import LOG_INTERVAL, Backoff, Reachability


def ref(partition: int, queue: str = "a") -> PartitionRef:
    return PartitionRef(queue, 1, partition)


@dataclass(eq=False)
class Run:
    check_at: float


async def test_one_timer_serves_all_deadlines_in_their_order() -> None:
    loop = asyncio.get_running_loop()
    start = loop.time()
    running = [Run(start + 0.03), Run(start + 0.01), Run(start + 3600)]
    fired: list[Run] = []
    both = asyncio.Event()

    def expired(execution: Execution, now: float) -> None:
        run = cast(Run, execution)
        assert run.check_at <= now
        fired.append(run)
        run.check_at = float("inf")
        if len(fired) == 2:
            both.set()

    deadlines = Deadlines(cast(list[Execution], running), expired, loop.time)
    deadlines.arm(min(run.check_at for run in running))
    await asyncio.wait_for(both.wait(), 10)
    assert fired == [running[1], running[0]]
    await asyncio.sleep(0)
    assert deadlines.next == start + 3600
    deadlines.close()
    assert deadlines.next == float("inf")


async def test_a_time_out_that_cannot_be_taken_in_is_not_the_end_of_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    loop = asyncio.get_running_loop()
    running = [Run(loop.time() - 1), Run(loop.time() - 1), Run(loop.time() + 0.02)]
    fired: list[Run] = []
    last = asyncio.Event()

    def expired(execution: Execution, now: float) -> None:
        run = cast(Run, execution)
        run.check_at = float("inf")
        fired.append(run)
        if run is running[2]:
            last.set()
        raise SystemExit("a defect")

    deadlines = Deadlines(cast(list[Execution], running), expired, loop.time)
    deadlines.arm(loop.time())
    await asyncio.wait_for(last.wait(), 10)
    await asyncio.sleep(0)
    assert fired == running
    assert caplog.text.count("a time-out could not be taken in") == 3


def test_QF7_backoff_grows_with_jitter_to_a_bound() -> None:
    highest = Backoff(lambda low, high: high)
    delays = [highest.next() for _ in range(12)]
    assert delays[:4] == [0.05, 0.1, 0.2, 0.4]
    assert delays[-1] == 5.0
    highest.reset()
    assert highest.next() == 0.05
    lowest = Backoff(lambda low, high: low)
    assert min(lowest.next() for _ in range(12)) > 0
    assert len({Backoff().next() for _ in range(20)}) > 10


def test_QF7_five_hundred_workers_that_lost_redis_at_once_come_back_one_after_the_other() -> None:
    """All begin to try at the same moment; when it is back after 20 s, none of them waits for more than 5 s."""
    back_at = 20.0
    arrivals = []
    for number in range(500):
        backoff, now = Backoff(random.Random(number).uniform), 0.0
        while now < back_at:
            now += backoff.next()
        arrivals.append(now - back_at)
    assert max(arrivals) <= 5
    windows = Counter(int(arrival / 0.1) for arrival in arrivals)
    assert max(windows.values()) <= 40  # of 500 in any tenth of a second; evenly spread it would be 10
    assert len(windows) >= 40


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_QF6_an_outage_is_told_once_per_interval(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    store = Reachability(clock)
    for _ in range(100):
        store.failed("claiming", StoreUnavailable("redis a:1/0 does not answer"))
    clock.now += LOG_INTERVAL
    store.failed("claiming", StoreUnavailable("redis a:1/0 does not answer"))
    clock.now += 1
    store.answered()
    assert [record.getMessage() for record in caplog.records] == [
        "claiming: redis a:1/0 does not answer; going on trying",
        "claiming: redis a:1/0 does not answer; going on trying",
        f"the store answers again after {LOG_INTERVAL + 1:.1f} s",
    ]


def test_a_store_that_fails_in_part_does_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    store = Reachability(Clock())
    for _ in range(100):
        store.failed("claiming", StoreUnavailable("no answer"))
        store.answered()
    assert len(caplog.records) == 2


def test_readiness_ends_after_30_s_without_an_answer() -> None:
    clock = Clock()
    store = Reachability(clock)
    assert not store.ready()
    store.answered()
    clock.now += 30
    assert store.ready()
    clock.now += 0.1
    assert not store.ready()


async def ask(port: int, request: bytes) -> tuple[int, Any]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    await writer.wait_closed()
    return int(head.split()[1]), json.loads(body) if body else None


async def test_the_health_server_answers_what_it_is_asked(caplog: pytest.LogCaptureFixture) -> None:
    well = True
    server = HealthServer("127.0.0.1", 0, {"/healthz": lambda: Health(well, {"age": 1.5})})
    running = asyncio.create_task(server.run())
    async with asyncio.timeout(10):
        while not server.port:
            await asyncio.sleep(0.001)
        assert await ask(server.port, b"GET /healthz HTTP/1.1\r\n\r\n") == (200, {"ok": True, "age": 1.5})
        well = False
        assert await ask(server.port, b"GET /healthz?x=1 HTTP/1.1\r\n\r\n") == (503, {"ok": False, "age": 1.5})
        assert await ask(server.port, b"HEAD /healthz HTTP/1.1\r\n\r\n") == (503, None)
        assert (await ask(server.port, b"GET /other HTTP/1.1\r\n\r\n"))[0] == 404
        assert (await ask(server.port, b"POST /healthz HTTP/1.1\r\n\r\n"))[0] == 405
        assert (await ask(server.port, b"nonsense\r\n\r\n"))[0] == 400
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


async def test_an_address_in_use_is_refused_at_the_start() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(InvalidInput, match=rf"127\.0\.0\.1 port {port} cannot be listened on") as caught:
            HealthServer("127.0.0.1", port, {}).listen()
    assert caught.value.field == "health_port"


async def test_an_address_in_use_is_told(caplog: pytest.LogCaptureFixture) -> None:
    taken = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
    port = taken.sockets[0].getsockname()[1]
    running = asyncio.create_task(HealthServer("127.0.0.1", port, {}).run())
    async with asyncio.timeout(10):
        while not caplog.records:
            await asyncio.sleep(0.001)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    taken.close()
    await taken.wait_closed()
    assert f"the health server cannot listen on 127.0.0.1 port {port}" in caplog.text


async def test_tasks_end_even_if_a_cancellation_is_dropped_on_the_way() -> None:
    dropped = 0

    async def drops_two() -> None:
        nonlocal dropped
        while True:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                dropped += 1
                if dropped > 2:
                    raise

    async def fails() -> None:
        raise ValueError

    tasks = [asyncio.create_task(drops_two()), asyncio.create_task(fails()), asyncio.create_task(asyncio.sleep(3600))]
    await asyncio.sleep(0)
    async with asyncio.timeout(10):
        await cancel_all(tasks)
    assert [task.cancelled() for task in tasks] == [True, False, True]
    assert isinstance(tasks[1].exception(), ValueError)
    assert dropped == 3
    await cancel_all([])
