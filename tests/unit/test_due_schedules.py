"""The duty that enqueues the jobs of schedules, on a queue in memory and in virtual time."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from headrace import App, Context
from headrace.election.fence import Token
from headrace.errors import Fenced, StoreUnavailable
from headrace.lifecycle import configure, promote
from headrace.maintenance.due_schedules import LONGEST_WAIT, DueSchedules
from headrace.maintenance.signs import Signs
from headrace.maintenance.turn import Turn
from headrace.schedules import Schedule
from headrace.settings import QueueSettings
from headrace.stores.memory import MemoryStore
from tests.conformance.steps import QUEUE, Worker, failures, ids, ref, settled

START = 1_700_000_000.25


class Scene:
    """A queue, a leader and a clock; `run` lets time pass from one look of the duty to the next."""

    def __init__(self) -> None:
        self.now = START
        self.store = MemoryStore(lambda: int(self.now * 1000))
        self.signs = Signs()
        self.token = Token(1, "n")
        self.outcomes: Counter[tuple[str, str]] = Counter()
        self.worker = Worker(self.store)
        self.looks = 0

    async def begin(self) -> None:
        await promote(self.store, QUEUE, 1, 1)
        self.signs.read(await self.store.read_topology(QUEUE))

    def duty(self, *schedules: Schedule) -> DueSchedules:
        return DueSchedules(
            schedules, lambda queue, name, outcome, times: self.outcomes.update({(name, outcome): times})
        )

    async def look(self, duty: DueSchedules) -> None:
        async def pause(seconds: float) -> None:
            self.now += seconds

        turn = Turn(QUEUE, self.store, lambda: self.token, lambda: None, lambda: self.now, pause)
        self.looks += 1
        await duty.run(turn, self.signs)

    async def run(self, duty: DueSchedules, seconds: float, **ending: Any) -> list[tuple[str, float]]:
        """Ids that ran, each with when, while so much time passed."""
        ran, end = [], self.now + seconds
        while (due := duty.due(self.signs, self.now)) is not None and due <= end:
            self.now = max(self.now, due)
            await self.look(duty)
            ran += [(each, self.now) for each in await self.work(**ending)]
        self.now = end
        return ran

    async def work(self, *, dead: bool = False) -> list[str]:
        found: list[str] = []
        while (claim := await self.worker.claim()).jobs:
            found += ids(claim)
            if dead:
                await self.store.fail(ref(), failures(claim, None))
            else:
                await self.store.ack(ref(), settled(claim))
        return found


@pytest.fixture
async def scene() -> Scene:
    made = Scene()
    await made.begin()
    return made


def every(seconds: int, name: str = "s", **options: Any) -> Schedule:
    app = App()

    @app.handler("tick")
    async def tick(ctx: Context, payload: None) -> None: ...

    app.schedule(name, "tick", queue=QUEUE, every=seconds, **options)
    return app.schedules[0]


async def test_QC6_a_schedule_every_few_seconds_among_many_others_neither_drifts_nor_skips(scene: Scene) -> None:
    others = [every(60 + n, f"other-{n}") for n in range(200)]
    ran = await scene.run(scene.duty(*others[:100], every(7, "quick"), *others[100:]), 1200)
    quick = [(each, at) for each, at in ran if each.startswith("quick@")]
    first = 7 - START % 7
    assert len(quick) == 1 + (1200 - first) // 7
    assert [round(at - START, 1) for _, at in quick] == [round(first + 7 * n, 1) for n in range(len(quick))]
    assert len(set(ran)) == len(ran)
    assert sum(1 for each, _ in ran if each.startswith("other-0@")) == 20


async def test_a_leader_with_rare_schedules_looks_once_a_minute_and_one_without_never(scene: Scene) -> None:
    assert scene.duty().due(scene.signs, scene.now) is None
    await scene.run(scene.duty(every(86_400)), 3600)
    assert scene.looks <= 3600 / LONGEST_WAIT + 2


@pytest.mark.parametrize("dead", [True, False])
async def test_QI2_QI4_neither_a_dead_job_nor_one_that_ended_keeps_the_next_one_from_running(
    scene: Scene, dead: bool
) -> None:
    ran = await scene.run(scene.duty(every(10)), 60, dead=dead)
    assert len({each for each, _ in ran}) == len(ran) == 6


async def test_QJ1_a_leader_that_died_before_it_noted_anything_is_repeated_without_a_second_job(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = scene.duty(every(10))
    await scene.run(first, 0)

    async def dies(*args: Any) -> bool:
        raise StoreUnavailable("no answer")

    monkeypatch.setattr(scene.store, "note_schedule", dies)
    scene.now += 12
    with pytest.raises(StoreUnavailable):
        await scene.look(first)
    assert len(await scene.work()) == 1  # and it has ended
    monkeypatch.undo()
    scene.token = Token(2, "m")
    await scene.look(scene.duty(every(10)))
    assert await scene.work() == []
    assert scene.outcomes == {("s", "enqueued"): 1, ("s", "existing"): 1}


async def test_L9_QJ1_a_former_leader_learns_that_it_leads_no_more_when_it_notes(scene: Scene) -> None:
    former = scene.duty(every(10))
    await scene.run(former, 0)
    scene.token = Token(2, "m")
    scene.now += 10
    await scene.look(scene.duty(every(10)))
    assert len(await scene.work()) == 1
    scene.token = Token(1, "n")
    scene.now += 10
    with pytest.raises(Fenced):
        await scene.look(former)
    assert len(await scene.work()) == 1  # of the second time, which nobody had enqueued yet
    scene.token = Token(2, "m")
    await scene.look(scene.duty(every(10)))
    assert await scene.work() == []


async def test_a_schedule_whose_job_cannot_be_made_keeps_no_other_one_back(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    bad = every(10, "bad")
    object.__setattr__(bad, "timeout", -3)  # what a declaration refuses; anything may be wrong with one of many
    duty = scene.duty(bad, every(10, "good"))
    ran = await scene.run(duty, 120)
    assert len(ran) == 12
    assert all(each.startswith("good@") for each, _ in ran)
    assert scene.outcomes["bad", "failed"] > 1
    assert ("good", "failed") not in scene.outcomes
    assert [each for each in caplog.messages if "schedule bad" in each and "timeout" in each] == [
        each for each in caplog.messages if "schedule" in each
    ]
    assert len(caplog.messages) == 1


async def test_times_that_a_full_queue_has_taken_are_not_looked_at_again(scene: Scene) -> None:
    duty = scene.duty(every(10, catch_up="all", max_catch_up=4))
    await scene.run(duty, 0)
    await configure(scene.store, QUEUE, QueueSettings(max_length=2))
    scene.now += 60
    for _ in range(5):  # six times have passed: two are missed, two enqueued, and two find the queue full
        await scene.look(duty)
    assert scene.outcomes == {("s", "enqueued"): 2, ("s", "missed"): 2}
    assert len(await scene.work()) == 2
    await scene.look(scene.duty(every(10, catch_up="all", max_catch_up=4)))  # whoever leads next goes on there
    assert scene.outcomes == {("s", "enqueued"): 4, ("s", "missed"): 2}
    ran = await scene.work()
    await configure(scene.store, QUEUE, QueueSettings())
    ran += [each for each, _ in await scene.run(duty, 30)]
    assert len(set(ran)) == len(ran)
    assert scene.outcomes["s", "missed"] == 2
    assert ("s", "existing") not in scene.outcomes
