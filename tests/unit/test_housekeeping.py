"""The frame of a leader's duties: due, paced, on their own, and only while this process leads."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import pytest

from headrace.election.fence import Token
from headrace.errors import Fenced, StoreUnavailable
from headrace.maintenance import Duty, Housekeeping, Signs
from headrace.maintenance.turn import AT_ONCE, NotLeading, Turn
from headrace.stores.memory import MemoryStore
from headrace.topology import PartitionRef, Topology

TOKEN = Token(3, "nonce")
REFS = [PartitionRef("emails", 1, number) for number in range(AT_ONCE * 2 + 3)]


class Time:
    """A clock that moves only when somebody pauses, or is told to."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.pauses: list[float] = []
        self._waiting: list[tuple[float, asyncio.Event]] = []

    def clock(self) -> float:
        return self.now

    async def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        if seconds <= 0:
            return
        over = asyncio.Event()
        self._waiting.append((self.now + seconds, over))
        await over.wait()

    async def move(self, seconds: float) -> None:
        """Let time pass, in steps, so that whoever wakes acts at its time."""
        end = self.now + seconds
        while True:
            await settle()
            self._waiting = [(at, over) for at, over in self._waiting if not over.is_set()]
            due = min((at for at, _ in self._waiting if at <= end), default=None)
            if due is None:
                break
            self.now = max(self.now, due)
            for at, over in self._waiting:
                if at <= self.now:
                    over.set()
        self.now = end


async def settle() -> None:
    for _ in range(50):
        await asyncio.sleep(0)


class Told:
    def __init__(self) -> None:
        self.runs: list[tuple[str, bool]] = []

    def duty_ran(self, queue: str, duty: str, seconds: float, *, failed: bool) -> None:
        self.runs.append((duty, failed))


class Every:
    """Runs every so many seconds, or once after each reading of the topology (None)."""

    def __init__(self, name: str, seconds: float | None, work: Callable[[Turn], object] = lambda turn: None) -> None:
        self.name = name
        self.ran_at: list[float] = []
        self._seconds = seconds
        self._work = work
        self._seen: object = None

    def due(self, signs: Signs, now: float) -> float | None:
        if self._seconds is None:
            return now if signs.topology is not self._seen else None
        return now if not self.ran_at else self.ran_at[-1] + self._seconds

    async def run(self, turn: Turn, signs: Signs) -> None:
        self.ran_at.append(turn.now())
        self._seen = signs.topology
        outcome = self._work(turn)
        if asyncio.iscoroutine(outcome):
            await outcome


class Scene:
    def __init__(self, duties: Sequence[Duty]) -> None:
        self.time, self.told, self.signs = Time(), Told(), Signs()
        self.token: Token | None = TOKEN
        self.fenced: list[tuple[int, int]] = []
        self.housekeeping = Housekeeping(
            "emails",
            MemoryStore(),
            self.signs,
            lambda: list(duties),
            self.told,
            lambda: None,
            clock=self.time.clock,
            pause=self.time.pause,
            uniform=lambda low, high: high,
        )


@asynccontextmanager
async def leading(*duties: Duty) -> AsyncIterator[Scene]:
    scene = Scene(duties)
    task = asyncio.create_task(
        scene.housekeeping.run(lambda: scene.token, lambda epoch, newer: scene.fenced.append((epoch, newer)))
    )
    await settle()
    yield scene
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert task.cancelled()


async def test_a_duty_runs_when_it_is_due_and_not_in_between() -> None:
    often, seldom, on_change = Every("often", 2), Every("seldom", 10), Every("on_change", None)
    async with leading(often, seldom, on_change) as scene:
        await scene.time.move(10)
        assert [at - 1000 for at in often.ran_at] == [0, 2, 4, 6, 8, 10]
        assert [at - 1000 for at in seldom.ran_at] == [0, 10]
        assert on_change.ran_at == []
        scene.signs.read(Topology.created("emails", 1, 1))
        await settle()
        assert len(on_change.ran_at) == 1
        scene.signs.read(Topology.created("emails", 1, 1))  # the same again is no news
        await scene.time.move(1)
        assert len(on_change.ran_at) == 1
        assert ("on_change", False) in scene.told.runs


async def test_a_duty_that_fails_is_tried_again_later_and_later_and_stops_no_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG, "headrace.maintenance")
    errors: list[Exception] = [ValueError("broken"), StoreUnavailable("redis x does not answer"), ValueError("again")]

    def fail(turn: Turn) -> None:
        if errors:
            raise errors.pop(0)

    broken, fine = Every("broken", 0.001, fail), Every("fine", 1)
    async with leading(broken, fine) as scene:
        await scene.time.move(6.9)
        assert [at - 1000 for at in broken.ran_at] == [0, 1, 3]
        assert len(fine.ran_at) == 7
        assert scene.told.runs.count(("broken", True)) == 3
        await scene.time.move(0.2)
        assert broken.ran_at[3] - 1000 == 7  # then the delay begins anew
        assert len(broken.ran_at) > 10
    assert "duty broken is put off: redis x does not answer" in caplog.text
    assert "duty broken failed and is tried again" in caplog.text


async def test_nothing_is_done_without_the_right_to_lead_and_it_may_come_back() -> None:
    steps: list[float] = []

    async def work(turn: Turn) -> None:
        async def step() -> None:
            steps.append(turn.now())

        for _ in range(3):
            await turn.step(step)

    duty = Every("duty", 0.5, work)
    async with leading(duty) as scene:
        assert len(steps) == 3
        scene.token = None
        await scene.time.move(5)
        assert len(steps) == 3
        scene.token = TOKEN
        await scene.time.move(2)
        assert len(steps) > 3
        assert ("duty", True) not in scene.told.runs


async def test_a_step_that_is_fenced_is_reported_with_the_epoch_that_it_met() -> None:
    def meet(turn: Turn) -> None:
        raise Fenced("emails", "1:0", 3, 9)

    async with leading(Every("duty", 100, meet)) as scene:
        assert scene.fenced == [(3, 9)]
        assert scene.told.runs == [("duty", True)]


async def test_activity_is_told_once_for_each_wish_to_hear_of_it() -> None:
    signs = Signs()
    heard = signs.listen()
    signs.noticed()
    assert not heard.is_set()
    signs.watch()
    signs.noticed()
    assert heard.is_set()
    heard.clear()
    signs.noticed()
    assert not heard.is_set()
    assert signs.activity == 3
    signs.came_back()
    assert heard.is_set()
    signs.forget(heard)


def turn(time: Time, token: Callable[[], Token | None]) -> Turn:
    return Turn("emails", MemoryStore(), token, lambda: None, time.clock, time.pause)


async def test_steps_on_many_partitions_come_in_order_a_few_at_a_time_with_rest() -> None:
    time, running, most = Time(), 0, 0

    async def step(ref: PartitionRef) -> int:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        time.now += 0.01
        running -= 1
        return ref.partition

    task = asyncio.create_task(turn(time, lambda: TOKEN).each(REFS, step))
    await time.move(60)
    assert await task == [ref.partition for ref in REFS]
    assert most == AT_ONCE
    assert time.pauses == [pytest.approx(0.01 * AT_ONCE)] * 2


async def test_a_leader_that_lost_the_right_stops_between_two_steps() -> None:
    time, done = Time(), list[PartitionRef]()

    async def step(ref: PartitionRef) -> None:
        done.append(ref)

    tokens = [TOKEN, TOKEN]
    with pytest.raises(NotLeading):
        await turn(time, lambda: tokens.pop() if tokens else None).each(REFS, step)
    assert done == REFS[: 2 * AT_ONCE]
    with pytest.raises(NotLeading):
        await turn(time, lambda: None).step(lambda: step(REFS[0]))
    assert done == REFS[: 2 * AT_ONCE]


async def test_the_first_error_of_many_steps_is_raised_when_all_that_were_begun_have_ended() -> None:
    ended: list[int] = []

    async def step(ref: PartitionRef) -> None:
        if ref.partition == 0:
            raise ValueError("first")
        await asyncio.sleep(0)
        ended.append(ref.partition)

    with pytest.raises(ValueError, match="first"):
        await turn(Time(), lambda: TOKEN).each(REFS, step)
    assert ended == list(range(1, AT_ONCE))
