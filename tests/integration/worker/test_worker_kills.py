"""Processes that end in the middle of something: killed while they take a wake-up, a job, or run one for long."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from headrace import Store
from headrace.stores import open_store
from tests.cluster.guard import Guard
from tests.cluster.processes import Component
from tests.integration.worker.processes import Start, ended, notes
from tests.integration.worker.support import QUEUE, empty, eventually, only_job, put, queue, sizes
from tests.services.redis import RedisServer

TAKER = """
import redis, sys, time
taken = redis.Redis.from_url(sys.argv[1]).bzpopmin(sys.argv[2], 60)
print(taken, flush=True)
time.sleep(600)
"""
"""A worker that takes a wake-up and does not get any further."""


@pytest.fixture
async def store(server: RedisServer, prefix: str) -> AsyncIterator[Store]:
    opened = open_store(server.url, prefix)
    yield opened
    await opened.close()


async def test_V16_V17_a_wake_taken_by_a_process_that_is_killed_strands_no_job(
    store: Store, server: RedisServer, prefix: str, start: Start, tmp_path: Path, process_guard: Guard
) -> None:
    producer = await queue(store)
    worker = start("alive")
    await eventually(lambda: "worker alive-" in worker.log.read_text())
    worker.signal(signal.SIGSTOP)  # so that the other one waits longer than it
    taker = Component(
        "taker",
        [sys.executable, "-c", TAKER, server.url, f"{{{prefix}:{QUEUE}}}:hot"],
        log=tmp_path / "taker.log",
        guard=process_guard,
        env={"PATH": os.environ["PATH"]},
    )
    taker.start()
    try:
        first = await put(producer, "note", [0])
        await eventually(lambda: "1:0" in taker.log.read_text())
        taker.signal(signal.SIGKILL)
        await ended(taker)
        second = await put(producer, "note", [0])  # gives no wake-up of its own: the partition is not empty
        worker.signal(signal.SIGCONT)
        await eventually(lambda: empty(store))
        assert Counter(entry[2] for entry in notes(tmp_path)) == Counter(first + second)
    finally:
        taker.stop(grace=0)


async def test_QA5_a_job_of_a_killed_worker_is_ready_again_and_nothing_is_held_against_it(
    store: Store, start: Start, tmp_path: Path
) -> None:
    producer = await queue(store)
    (job_id,) = await put(producer, "wait", [None], max_retries=0)
    first = start("first")
    await eventually(lambda: notes(tmp_path))
    first.signal(signal.SIGKILL)
    await ended(first)
    job = await only_job(store)
    assert (job.id, job.attempt, job.expiries, job.crashes) == (job_id, 0, 1, 0)
    assert [entry.status for entry in job.history] == ["lease expired"]
    assert job.history[0].worker.startswith("first-")


async def test_QA17_a_crash_is_found_by_its_renewals_whatever_the_others_run(
    store: Store, start: Start, tmp_path: Path
) -> None:
    """Jobs that take many leases: only those of the dead worker run again, the others go on untouched."""
    producer = await queue(store)
    jobs = await put(producer, "wait", range(4), timeout=3 * 3600)
    workers = {name: start(name, "-c", "2") for name in ("dies", "lives")}
    await eventually(lambda: len(notes(tmp_path)) == 4)
    held = {name: {entry[2] for entry in notes(tmp_path) if entry[0] == name} for name in workers}
    assert {len(each) for each in held.values()} == {2}
    await _leases_pass(store, 4)
    assert len(notes(tmp_path)) == 4
    workers["dies"].signal(signal.SIGKILL)
    await ended(workers["dies"])
    third = start("third", "-c", "4")
    await eventually(lambda: len(notes(tmp_path)) == 6)
    assert {entry[2] for entry in notes(tmp_path)[4:]} == held["dies"]
    await _leases_pass(store, 4)
    for name in ("lives", "third"):
        (tmp_path / f"go-{name}").touch()
    await eventually(lambda: empty(store))
    assert Counter(entry[2] for entry in notes(tmp_path) if entry[1] == "ended") == Counter(jobs)
    for process in (workers["lives"], third):
        process.signal(signal.SIGTERM)
        assert await ended(process) == 0


async def _leases_pass(store: Store, number: int) -> None:
    """Wait for so many leases of 500 ms, by the server's clock."""

    async def now() -> int:
        topology = await store.read_topology(QUEUE)
        assert topology is not None
        (counts,) = await store.counts(topology.refs(1))
        return counts.now

    ends = await now() + number * 500

    async def passed() -> bool:
        return await now() >= ends

    await eventually(passed)


@pytest.mark.parametrize("moment", ["before it claims", "while jobs run and wait", "as jobs end"])
async def test_QA11_a_kill_at_any_moment_leaves_each_job_in_redis(
    store: Store, start: Start, tmp_path: Path, moment: str
) -> None:
    producer = await queue(store, partitions=2)
    doomed = start("doomed", "-c", "1", "--queue-buffer", "3", LEASE_MS=1000)
    await eventually(lambda: "worker doomed-" in doomed.log.read_text())
    jobs = await put(producer, "note" if moment == "as jobs end" else "wait", [0] * 4)
    if moment != "before it claims":
        await eventually(lambda: notes(tmp_path))
    doomed.signal(signal.SIGKILL)
    assert await ended(doomed) == -signal.SIGKILL
    assert (await sizes(store)).keys() <= {"ready", "leased"}
    (tmp_path / "go-other").touch()
    start("other")
    await eventually(lambda: empty(store))
    assert {entry[2] for entry in notes(tmp_path)} == set(jobs)


async def test_QA14_no_lock_of_a_killed_worker_holds_up_the_others(store: Store, start: Start, tmp_path: Path) -> None:
    """The one that leads, and the one that keeps the timer, are killed with their jobs; nobody waits for a lock."""
    producer = await queue(store, partitions=2)
    workers = [start(f"w{number}", "-c", "2") for number in range(2)]
    for number, worker in enumerate(workers):
        await eventually(lambda: f"worker w{number}-" in worker.log.read_text())  # noqa: B023
    jobs = await put(producer, "wait", range(4))
    await eventually(lambda: len(notes(tmp_path)) == 4)
    for worker in workers:
        worker.signal(signal.SIGKILL)
        await ended(worker)
    (tmp_path / "go-last").touch()
    start("last", "-c", "4")
    await eventually(lambda: empty(store))
    assert {entry[2] for entry in notes(tmp_path) if entry[:2] == ["last", "ended"]} == set(jobs)


async def test_QK6_what_a_killed_worker_held_is_told_with_who_it_was_where_it_ran_and_since_when(
    store: Store, start: Start, tmp_path: Path, server: RedisServer, prefix: str
) -> None:
    """By the worker that takes it back, and to whoever looks at the job."""
    producer = await queue(store)
    (job,) = await put(producer, "wait", [None])
    place = {"POD_NAME": "emails-abc", "NODE_NAME": "node-1"}
    first = start("first", place=place)
    await eventually(lambda: notes(tmp_path))
    entry = (await eventually(lambda: store.workers(QUEUE)))[0]
    first.signal(signal.SIGKILL)
    second = start("second")
    await eventually(lambda: "back from worker" in second.log.read_text())
    (line,) = [line for line in second.log.read_text().splitlines() if "back from worker" in line]
    where = f"Pod emails-abc, node node-1, process {entry.beat.pid}"
    assert f"queue emails: took 1 job(s) back from worker {entry.worker} ({where}): its leases ended " in line
    assert re.search(r"it was last heard of \d+\.\d s ago: if it lives, a handler hung .* it was killed", line)
    assert "kubectl describe pod emails-abc" in line
    command = [sys.executable, "-m", "headrace", "job", "describe", QUEUE, job]
    options = ["--redis-url", server.url, "--prefix", prefix]
    shown = await asyncio.to_thread(subprocess.check_output, command + options, text=True)
    assert f"lease expired on {entry.worker} ({where}) its worker was killed, crashed" in shown
    (tmp_path / "go-second").touch()
    await eventually(lambda: empty(store))
