"""``headrace leader show`` with real workers."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from headrace import App, Store, Worker, WorkerSettings
from headrace.lifecycle import promote
from headrace.schedules import ScheduleMark
from headrace.stores.base import Fence
from headrace.worker import wakeups
from tests.integration.conftest import Run
from tests.integration.worker.support import eventually

QUEUE = "emails"


@pytest.fixture(autouse=True)
def quick_ticks(monkeypatch: pytest.MonkeyPatch) -> None:
    """By which workers say that they are candidates."""
    monkeypatch.setattr(wakeups, "TICK_SECONDS", 0.1)


async def shown(run: Run) -> dict[str, Any]:
    code, out, err = await asyncio.to_thread(run, "leader", "show", QUEUE, "-o", "json")
    assert (code, err) == (0, "")
    found: dict[str, Any] = json.loads(out)
    return found


async def test_who_leads_through_what_since_when_and_who_is_next(run: Run, store: Store) -> None:
    await promote(store, QUEUE, 1, 1)
    assert (await shown(run))["leader"] is None
    _, out, _ = await asyncio.to_thread(run, "leader", "show", QUEUE)
    assert out.splitlines() == [
        "NAME    LEADER  BACKEND  EPOCH  VALID  NEXT  AGE",
        "emails  -       -        0      -      -     -",
    ]

    first = Worker(App(), store, WorkerSettings(queues=(QUEUE,), worker_id="first"))
    tasks = [asyncio.create_task(first.run())]
    await eventually(first.is_leader)
    others = [Worker(App(), store, WorkerSettings(queues=(QUEUE,), worker_id=f"other-{n}")) for n in range(4)]
    others.append(Worker(App(), store, WorkerSettings(queues=(QUEUE,), worker_id="never", leader_backends=("none",))))
    tasks += [asyncio.create_task(each.run()) for each in others]

    async def known() -> dict[str, Any] | None:
        found = await shown(run)
        return found if len(found["standing_by"]) == 4 and found["leader"] else None

    found = await eventually(known)
    leader = found["leader"]
    assert (leader["worker"], leader["backend"], leader["rank"], found["epoch"]) == (first.identity, "redis", 1, 1)
    assert leader["identity"].startswith(first.identity + "_")
    assert 0 < leader["valid_ms"] <= 30_000
    assert leader["leads_for_ms"] >= 0
    assert leader["since_ms"] > 0
    assert [each["worker"] for each in found["standing_by"]] == sorted(each.identity for each in others[:4])
    _, out, _ = await asyncio.to_thread(run, "leader", "show", QUEUE)
    line = out.splitlines()[1]
    assert line.startswith(f"emails  {first.identity}  redis    1 ")
    assert " +1" in line

    await first.stop()

    async def succeeded() -> bool:
        found = await shown(run)
        return found["epoch"] == 2 and found["leader"] is not None

    await eventually(succeeded)
    for each in others:
        await each.stop()
    assert (await shown(run))["leader"] is None
    await asyncio.gather(*tasks)


async def test_a_queue_that_does_not_exist_is_told(run: Run, store: Store) -> None:
    code, _, err = await asyncio.to_thread(run, "leader", "show", "nowhere")
    assert code == 1
    assert "queue 'nowhere' does not exist" in err


async def test_schedules_are_listed_with_how_far_they_are(run: Run, store: Store) -> None:
    code, _, err = await asyncio.to_thread(run, "schedule", "list", QUEUE)
    assert (code, QUEUE in err) == (1, True)
    await promote(store, QUEUE, 1, 1)
    now = (await store.read_schedules(QUEUE)).now
    nightly, sweep = ScheduleMark(1_774_926_240_000, "0 3 * * * Europe/Paris"), ScheduleMark(now - 7_000, "every 60 s")
    for name, mark in (("sweep", sweep), ("nightly", nightly)):
        assert await store.note_schedule(QUEUE, Fence(1, "n"), name, None, mark)
    _, out, _ = await asyncio.to_thread(run, "schedule", "list", QUEUE)
    heading, first, second = out.splitlines()
    assert heading.split() == ["NAME", "RULE", "NEXT", "UNTIL", "AGE"]
    next_night = "overdue" if now > 1_775_005_200_000 + 60_000 else "2026-04-01T01:00:00Z"
    assert [*first.split()[:1], *first.split()[7:9]] == ["nightly", next_night, "2026-03-31T03:04:00Z"]
    assert second.split()[:4] == ["sweep", "every", "60", "s"]
    _, out, _ = await asyncio.to_thread(run, "schedule", "list", QUEUE, "-o", "json")
    told = json.loads(out)[1]
    assert (told["name"], told["rule"], told["until_ms"]) == ("sweep", "every 60 s", now - 7_000)
    assert (told["next_ms"] % 60_000, told["overdue"]) == (0, False)
    assert now - 7_000 < told["next_ms"] <= now + 53_000


async def test_a_schedule_whose_code_is_gone_is_forgotten(run: Run, store: Store) -> None:
    await promote(store, QUEUE, 1, 1)
    now = (await store.read_schedules(QUEUE)).now
    gone, alive = ScheduleMark(now - 900_000, "every 60 s"), ScheduleMark(now, "every 3600 s")
    for name, mark in (("gone", gone), ("alive", alive)):
        assert await store.note_schedule(QUEUE, Fence(1, "n"), name, None, mark)
    _, out, _ = await asyncio.to_thread(run, "schedule", "list", QUEUE, "-o", "json")
    assert {each["name"]: each["overdue"] for each in json.loads(out)} == {"gone": True, "alive": False}
    code, out, err = await asyncio.to_thread(run, "schedule", "delete", QUEUE, "gone")
    assert (code, out) == (1, "")
    assert err.startswith("Error: this would forget schedule gone; without a terminal give --yes")
    _, _, err = await asyncio.to_thread(run, "schedule", "delete", QUEUE, "alive")
    assert err.startswith("Warning: schedule alive is not overdue; if it is still declared it begins anew\n")
    code, out, _ = await asyncio.to_thread(run, "schedule", "delete", QUEUE, "gone", "--yes")
    assert (code, out) == (0, f"schedule gone of queue {QUEUE} is forgotten\n")
    assert set((await store.read_schedules(QUEUE)).marks) == {"alive"}
    code, _, err = await asyncio.to_thread(run, "schedule", "delete", QUEUE, "gone", "--yes")
    assert (code, "'gone' is no schedule of queue" in err) == (1, True)
