"""Coroutines of handlers run in one task as long as they end without waiting; each keeps what a task of its own has."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any, cast

import pytest

from headrace.context import current_run
from headrace.worker.leases import Execution
from headrace.worker.outcomes import error_text
from headrace.worker.runs import SLOW_SECONDS, STEP_SECONDS, SWIFT_JOBS, Runs

seen: ContextVar[str] = ContextVar("seen", default="")


class Run:
    """Stands for an `Execution`: what `Runs` and `enter` need of it."""

    def __init__(self, body: Callable[[], Awaitable[Any]]) -> None:
        self.body = body
        self.task: asyncio.Task[Any] | None = None
        self.wanted = True


class Stage:
    """Runs, what became of them, and a clock that a run moves."""

    def __init__(self) -> None:
        self.now = 100.0
        self.ended: dict[Run, Any] = {}
        self.tasks: dict[Run, asyncio.Task[Any] | None] = {}
        self.slowed = 0
        self.then: list[Run] = []
        self.runs = Runs(cast(Any, self._call), cast(Any, self._ended), self._told, lambda: self.now)

    def _call(self, run: Run) -> Any:
        if not run.wanted:
            return None
        self.tasks[run] = asyncio.current_task()
        return run.body()

    def _ended(self, run: Run, returned: Any, error: BaseException | None) -> None:
        self.ended[run] = returned if error is None else error
        run.task = None
        if self.then:
            self.add(self.then.pop(0))

    def _told(self) -> None:
        self.slowed += 1

    def add(self, *runs: Run) -> None:
        for run in runs:
            self.runs.add(cast(Execution, run))

    async def all_ended(self, *runs: Run) -> list[Any]:
        async with asyncio.timeout(20):
            while not self.ended.keys() >= set(runs):
                await asyncio.sleep(0)
        return [self.ended[run] for run in runs]


@pytest.fixture
async def stage() -> Stage:
    return Stage()


def at_once(result: Any = None) -> Run:
    async def body() -> Any:
        return result

    return Run(body)


async def test_runs_that_end_at_once_are_run_in_order_in_one_task_and_what_follows_them_too(stage: Stage) -> None:
    runs = [at_once(number) for number in range(5)]
    stage.then = [at_once("next")]
    (following,) = stage.then
    stage.add(*runs)
    assert stage.ended == {}  # not within the call that adds them
    assert await stage.all_ended(*runs, following) == [0, 1, 2, 3, 4, "next"]
    assert list(stage.ended) == [*runs, following]
    assert len(set(stage.tasks.values())) == 1


async def test_a_run_that_waits_keeps_its_task_and_holds_no_other_behind_it(stage: Stage) -> None:
    gate = asyncio.Event()

    async def body() -> list[bool]:
        before = asyncio.current_task()
        await gate.wait()
        await asyncio.sleep(0)
        return [asyncio.current_task() is before, current_run() is cast(Any, waiting)]

    waiting, others = Run(body), [at_once(1), at_once(2)]
    stage.add(waiting, *others)
    await stage.all_ended(*others)
    assert waiting.task is stage.tasks[waiting]
    assert len(set(stage.tasks.values())) == 3
    late = at_once("late")
    stage.add(late)
    assert await stage.all_ended(late) == ["late"]
    gate.set()
    assert await stage.all_ended(waiting) == [[True, True]]


async def test_each_run_has_a_context_of_its_own_to_the_end(stage: Stage) -> None:
    async def body(name: str, waits: bool) -> tuple[str, str]:
        before = seen.get()
        seen.set(name)
        if waits:
            await asyncio.sleep(0)
            await asyncio.create_task(asyncio.sleep(0))
        return before, seen.get()

    runs = [
        Run(lambda name=name, waits=waits: body(name, waits))  # type: ignore[misc]
        for name, waits in (("a", False), ("b", False), ("c", True), ("d", False), ("e", True))
    ]
    stage.then = [Run(lambda: body("f", False))]
    runs += stage.then
    stage.add(*runs[:-1])
    assert await stage.all_ended(*runs) == [("", name) for name in "abcdef"]
    assert seen.get() == ""


async def test_a_run_can_be_cancelled_and_timed_out_from_its_first_step_on(stage: Stage) -> None:
    async def limited() -> str:
        try:
            async with asyncio.timeout(0.01):
                await asyncio.Event().wait()
        except TimeoutError:
            return "timed out"
        return "not"

    async def grouped() -> list[int]:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(asyncio.sleep(0, number)) for number in range(3)]
        return [task.result() for task in tasks]

    waits = Run(asyncio.Event().wait)
    runs = [Run(limited), Run(grouped)]
    stage.add(*runs, waits)
    assert await stage.all_ended(*runs) == ["timed out", [0, 1, 2]]
    assert waits.task is not None
    waits.task.cancel()
    (error,) = await stage.all_ended(waits)
    assert isinstance(error, asyncio.CancelledError)


async def test_a_run_that_cancels_its_own_task_is_not_the_end_of_the_next(stage: Stage) -> None:
    async def selfish() -> str:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        return "done"

    async def waits() -> str:
        await asyncio.sleep(0)
        return "waited"

    runs = [Run(selfish), Run(waits)]
    stage.add(*runs)
    assert await stage.all_ended(*runs) == ["done", "waited"]


async def test_whatever_a_run_raises_is_its_own_end_only(stage: Stage) -> None:
    def refuses() -> Awaitable[Any]:
        raise StopIteration("never a coroutine")

    async def exits() -> None:
        raise SystemExit(3)

    async def exits_later() -> None:
        await asyncio.sleep(0)
        raise KeyboardInterrupt

    unwanted = at_once("never")
    unwanted.wanted = False
    runs = [Run(refuses), Run(exits), Run(exits_later), at_once("last")]
    stage.add(unwanted, *runs)
    found = await stage.all_ended(*runs)
    assert [type(each) for each in found] == [StopIteration, SystemExit, KeyboardInterrupt, str]
    assert unwanted not in stage.ended


@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize("broken", ["_ended", "_told"])
async def test_an_end_that_cannot_be_taken_in_keeps_no_other_run_from_beginning(
    waits: bool, broken: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    taken_in, defects = getattr(Stage, broken), [SystemExit(3), ValueError("a defect")]

    def defective(self: Stage, *told: Any) -> None:
        taken_in(self, *told)
        if defects:
            raise defects.pop()

    monkeypatch.setattr(Stage, broken, defective)
    stage = Stage()

    async def body() -> None:
        stage.now += STEP_SECONDS / 2
        if waits:
            await asyncio.sleep(0)

    runs = [Run(body) for _ in range(9)]
    stage.add(*runs)
    await stage.all_ended(*runs)
    late = [Run(body) for _ in range(9)]
    stage.now += SLOW_SECONDS
    stage.add(*late)
    await stage.all_ended(*late)
    assert defects == []
    assert caplog.text.count("a run, or its end, could not be taken in") == 2


async def test_runs_that_compute_for_long_let_others_have_their_turn(stage: Stage) -> None:
    turns: list[int] = []

    async def computes() -> None:
        stage.now += STEP_SECONDS / 2
        turns.append(len(stage.ended))

    async def other() -> None:
        while len(stage.ended) < 9:
            turns.append(-1)
            await asyncio.sleep(0)

    runs = [Run(computes) for _ in range(9)]
    stage.add(*runs)
    await asyncio.gather(other(), stage.all_ended(*runs))
    assert stage.slowed >= 2  # what waits behind them should go elsewhere
    assert [turn for turn in turns if turn >= 0] == list(range(9))
    assert turns.index(-1) < turns.index(8)
    assert -1 in turns[turns.index(3) : turns.index(8)]


async def test_the_pace_says_how_many_more_may_be_claimed_until_a_run_waits(stage: Stage) -> None:
    async def computes() -> None:
        stage.now += STEP_SECONDS / 100

    async def waits() -> None:
        await asyncio.sleep(0)

    async def through(body: Callable[[], Awaitable[Any]], jobs: int = 50) -> int:
        runs = [Run(body) for _ in range(jobs)]
        stage.add(*runs)
        await stage.all_ended(*runs)
        return stage.runs.swift

    assert stage.runs.swift == 0
    assert await through(computes) == pytest.approx(100, abs=1)
    assert await through(at_once().body) == SWIFT_JOBS
    assert stage.slowed == 0
    assert await through(waits) == 0
    assert stage.slowed == 1
    assert await through(at_once().body) == 0  # for a while, lest it goes to and fro
    stage.now += SLOW_SECONDS
    assert await through(at_once().body) == SWIFT_JOBS


async def test_a_run_that_is_dropped_while_it_waits_is_closed_in_its_context() -> None:
    told: list[str] = []
    stage = Stage()

    async def body() -> None:
        seen.set("mine")
        try:
            await asyncio.Event().wait()
        finally:
            told.append(seen.get())

    run = Run(body)
    stage.add(run)
    async with asyncio.timeout(20):
        while run.task is None:
            await asyncio.sleep(0)
    cast(Any, run.task.get_coro()).close()
    assert told == ["mine"]
    assert isinstance(stage.ended[run], GeneratorExit)


@pytest.mark.parametrize("waits", [True, False])
async def test_what_is_told_of_an_error_begins_in_the_code_of_its_author(waits: bool) -> None:
    async def broken() -> None:
        if waits:
            await asyncio.sleep(0)
        raise ValueError("no such host")

    stage, run = Stage(), Run(broken)
    stage.add(run)
    (error,) = await stage.all_ended(run)
    first, *frames = error_text(error).splitlines()
    assert first == "ValueError: no such host"
    assert [frame.rpartition(" ")[2] for frame in frames] == ["broken"]
