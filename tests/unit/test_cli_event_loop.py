"""The event loop of a worker process, which no task of a handler can end."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable
from typing import NoReturn

import pytest

from headrace import App, Context, Producer, Worker, WorkerSettings
from headrace.cli.event_loop import fastest_loop, run_to_its_end
from headrace.lifecycle import promote
from headrace.stores.memory import MemoryStore

LOOPS = pytest.mark.parametrize("loop_factory", [asyncio.new_event_loop, fastest_loop()])


@LOOPS
@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt])
def test_M7_J16_a_task_that_a_handler_has_started_cannot_end_the_worker(
    kind: type[BaseException],
    loop_factory: Callable[[], asyncio.AbstractEventLoop],
    caplog: pytest.LogCaptureFixture,
) -> None:
    app, ran = App(), list[str]()

    async def leave() -> NoReturn:
        raise kind(9)

    @app.handler("leaves")
    async def leaves(ctx: Context, payload: None) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(leave())

    @app.handler("stays")
    async def stays(ctx: Context, payload: None) -> None:
        ran.append(ctx.job.id)

    async def work() -> bool:
        store = MemoryStore()
        await promote(store, "default", 1, 1)
        worker = Worker(app, store, WorkerSettings(leader_backends=("none",)))
        working = asyncio.create_task(worker.run(handle_signals=True))
        producer = Producer(store)
        await producer.enqueue("default", "leaves", id="a", max_retries=0)
        async with asyncio.timeout(30):
            while (await producer.status("default", "a")).state != "dead":
                await asyncio.sleep(0.01)
        await producer.enqueue("default", "stays", id="b")
        await producer.wait_until_empty("default", timeout=30)
        await worker.stop()
        return (await working).clean

    with caplog.at_level(logging.ERROR, "headrace.worker"):
        assert run_to_its_end(work(), loop_factory)
    assert ran == ["b"]
    assert any(f"raised {kind.__name__}; the worker goes on" in record.message for record in caplog.records)


@LOOPS
def test_what_the_work_itself_raises_is_raised(loop_factory: Callable[[], asyncio.AbstractEventLoop]) -> None:
    async def work() -> NoReturn:
        raise SystemExit(3)

    with pytest.raises(SystemExit) as ended:
        run_to_its_end(work(), loop_factory)
    assert ended.value.code == 3


@LOOPS
def test_a_ctrl_c_ends_work_that_does_not_handle_it(loop_factory: Callable[[], asyncio.AbstractEventLoop]) -> None:
    ended = list[str]()

    async def work() -> None:
        asyncio.get_running_loop().call_soon(signal.raise_signal, signal.SIGINT)
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("cancelled")

    with pytest.raises(KeyboardInterrupt):
        run_to_its_end(work(), loop_factory)
    assert ended == ["cancelled"]
