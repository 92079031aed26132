"""Jobs whose worker was lost: whoever recovers them tells those that run again from those that seem to kill."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from headrace import App, Context, InvalidInput, Store
from headrace.dead_letters import dead_jobs
from headrace.job import Job
from headrace.stores import open_store
from headrace.topology import PartitionRef
from tests.integration.worker.processes import Start, ended, notes
from tests.integration.worker.support import QUEUE, empty, eventually, put, queue, sizes, sizes_are, working
from tests.services.redis import RedisServer

AT = PartitionRef(QUEUE, 1, 0)


async def lose(store: Store, times: int) -> None:
    """Workers that take the only job, running nothing else, are never heard of again."""
    for number in range(times):
        claim = await store.claim(AT, f"doomed-{number}", 1, 1, 1, alone=True)
        assert len(claim.jobs) == 1
        if number < times - 1:
            await eventually(lambda: store.recover(AT))


async def test_QH5_QB9_a_hook_and_a_metric_tell_recovered_jobs_from_poisoned_ones(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    app, told, ran = App(), [], []

    @app.on_lost_job
    async def lost(job: Job, outcome: str) -> None:
        await asyncio.sleep(0)
        told.append((outcome, job.id, job.type, job.expiries))

    @app.on_lost_job
    def broken(job: Job, outcome: str) -> None:
        raise RuntimeError("the hook is broken")

    @app.handler("job")
    async def job(ctx: Context, payload: Any) -> None:
        ran.append(payload)

    producer = await queue(store)
    (recovered,) = await put(producer, "job", ["recovered"])
    await lose(store, 1)
    with caplog.at_level(logging.WARNING):
        async with working(app, store) as running:
            await eventually(lambda: running.told.outcomes == {"succeeded": 1})
            await eventually(lambda: told == [("recovered", recovered, "job", 1)])
            assert running.told.poison == 0
        (poisoned,) = await put(producer, "job", ["poisoned"])
        await lose(store, 5)
        async with working(app, store) as running:
            await eventually(lambda: running.told.poison == 1)
            await eventually(lambda: told[1:] == [("poisoned", poisoned, "job", 5)])
            assert running.told.outcomes == {}
    assert ran == ["recovered"]
    assert await sizes(store) == {"dead": 1}
    assert f"job {poisoned} (job) is dead: worker lost: its process ended or froze 3 times" in caplog.text
    assert caplog.text.count("a hook for lost jobs failed with job") == 2


async def test_jobs_that_fail_or_are_handed_back_are_not_told(store: Store) -> None:
    app, told, runs = App(), [], 0

    @app.on_lost_job
    def lost(job: Job, outcome: str) -> None:
        told.append(outcome)

    @app.handler("job")
    async def job(ctx: Context, payload: Any) -> None:
        nonlocal runs
        runs += 1
        if runs < 3:
            raise ValueError

    producer = await queue(store)
    await put(producer, "job", [None])
    async with working(app, store) as running:
        await eventually(lambda: running.told.outcomes == {"retried": 2, "succeeded": 1})
    assert told == []


def test_a_hook_that_takes_something_else_is_refused() -> None:
    def wrong(job: Job) -> None: ...

    with pytest.raises(InvalidInput, match="on_lost_job"):
        App().on_lost_job(wrong)  # type: ignore[type-var]


# ---- real processes --------------------------------------------------------------------------------------------------


@pytest.fixture
async def served(server: RedisServer, prefix: str) -> AsyncIterator[Store]:
    opened = open_store(server.url, prefix)
    yield opened
    await opened.close()


def lost_lines(folder: Path) -> list[list[str]]:
    path = folder / "lost"
    return [line.split() for line in path.read_text().splitlines()] if path.exists() else []


async def test_J7_QH1_QH2_V15_a_job_that_kills_its_worker_is_dead_after_its_limit_and_its_neighbours_are_not_charged(
    served: Store, start: Start, tmp_path: Path
) -> None:
    """Each worker dies by SIGKILL, and another takes its place, as in a Deployment."""
    producer = await queue(served)
    (poison,) = await put(producer, "kill", [None], max_retries=0)
    innocent = await put(producer, "note", [0.2] * 20)
    deaths = 0

    async def one_letter() -> bool:
        return (await sizes(served)).get("dead", 0) == 1

    worker = start("w0")
    while not await one_letter():
        if not worker.running:
            deaths += 1
            assert worker.exit_code == -signal.SIGKILL
            worker = start(f"w{deaths}")
        await asyncio.sleep(0.02)
    await eventually(lambda: sizes_are(served, {"dead": 1}))
    assert worker.running
    await eventually(lambda: any(outcome == "poisoned" for _, outcome, *_ in lost_lines(tmp_path)))
    worker.signal(signal.SIGTERM)
    assert await ended(worker) == 0
    (letter,) = [each async for each in dead_jobs(served, QUEUE)]
    dead = letter.job
    assert dead is not None
    # Twice it was one of several that may have done it, three times it ran alone. Its retries play no part in this.
    assert (dead.id, dead.attempt, dead.expiries, dead.crashes, deaths) == (poison, 0, 5, 3, 5)
    assert dead.last_error.startswith("worker lost: its process ended or froze 3 times")
    began = Counter(entry[2] for entry in notes(tmp_path))
    assert began[poison] == 5
    assert set(began) == {poison, *innocent}
    assert [entry[4] for entry in notes(tmp_path)] == ["0"] * sum(began.values())  # no attempt of anybody was used
    told = Counter((outcome, job) for _, outcome, job, *_ in lost_lines(tmp_path))
    assert told["poisoned", poison] == 1
    assert told["recovered", poison] >= 4
    assert not [job for outcome, job in told if outcome == "poisoned" and job != poison]


async def test_QG5_a_worker_that_is_killed_while_it_stops_loses_no_job_and_counts_right(
    served: Store, start: Start, tmp_path: Path
) -> None:
    producer = await queue(served)
    jobs = await put(producer, "wait", range(3))
    first = start("first", "-c", "2", "--queue-buffer", "1", "--grace-seconds", "3600", LEASE_MS=1000)
    await eventually(lambda: len(notes(tmp_path)) == 2)
    first.signal(signal.SIGTERM)
    await eventually(lambda: sizes_are(served, {"leased": 2, "ready": 1}))
    first.signal(signal.SIGKILL)
    assert await ended(first) == -signal.SIGKILL
    (tmp_path / "go-second").touch()
    second = start("second")
    await eventually(lambda: empty(served))
    second.signal(signal.SIGTERM)
    assert await ended(second) == 0
    finished = Counter(entry[2] for entry in notes(tmp_path) if entry[1] == "ended")
    assert finished == Counter(jobs)
    assert {entry[4] for entry in notes(tmp_path)} == {"0"}
    recovered = [line for line in lost_lines(tmp_path) if line[1] == "recovered"]
    assert Counter(line[2] for line in recovered) == Counter(set(jobs) - {_handed_back(tmp_path, jobs)})
    assert {(line[3], line[4]) for line in recovered} == {("1", "0")}


def _handed_back(folder: Path, jobs: list[str]) -> str:
    """The job that the first worker never started."""
    (left,) = set(jobs) - {entry[2] for entry in notes(folder) if entry[0] == "first"}
    return left


async def test_QA15_every_worker_recovers_and_no_single_one_can_hold_it_up(
    served: Store, start: Start, tmp_path: Path
) -> None:
    """One worker holds the jobs and dies, the one that keeps the timer stands still: the third goes on by itself."""
    producer = await queue(served)
    first = start("first", "-c", "4")
    jobs = await put(producer, "wait", range(4))
    await eventually(lambda: len(notes(tmp_path)) == 4)
    second = start("second")
    await eventually(lambda: "worker second-" in second.log.read_text())
    await asyncio.sleep(0)
    second.signal(signal.SIGSTOP)
    first.signal(signal.SIGKILL)
    assert await ended(first) == -signal.SIGKILL
    (tmp_path / "go-third").touch()
    start("third")
    await eventually(lambda: empty(served))
    assert Counter(entry[2] for entry in notes(tmp_path) if entry[:2] == ["third", "ended"]) == Counter(jobs)
    second.signal(signal.SIGCONT)
