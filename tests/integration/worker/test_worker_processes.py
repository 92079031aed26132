"""Worker processes as they are started in a Pod, and what is done to them there: killed, frozen, restarted, cut off."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from redis.asyncio import Redis

from headrace import Store, StoreUnavailable
from headrace.lifecycle import promote
from headrace.stores import open_store
from headrace.topology import PartitionRef
from tests.cluster.guard import Guard
from tests.cluster.ports import free_ports
from tests.docs.blocks import blocks
from tests.integration.worker.processes import ROOT, Start, cpu_seconds, ended, notes, told_lost
from tests.integration.worker.support import QUEUE, empty, eventually, only_job, put, queue, sizes
from tests.services.redis import RedisServer, flavours


@pytest.fixture
async def store(server: RedisServer, prefix: str) -> AsyncIterator[Store]:
    opened = open_store(server.url, prefix)
    yield opened
    await opened.close()


@pytest.mark.parametrize("result", ["J2 completes", "J3 fails"])
async def test_J2_J3_a_frozen_worker_changes_nothing_afterwards(
    store: Store, start: Start, tmp_path: Path, result: str
) -> None:
    """Frozen for longer than its lease, another one takes over; then it goes on and reports its result."""
    producer = await queue(store)
    (job,) = await put(producer, "wait", [None])
    first = start("first")
    await eventually(lambda: ["first", "began", job, "1:0", "0"] in notes(tmp_path))
    first.signal(signal.SIGSTOP)
    second = start("second")
    await eventually(lambda: ["second", "began", job, "1:0", "0"] in notes(tmp_path))
    (tmp_path / "go-first").touch()
    if result == "J3 fails":
        (tmp_path / "fail-first").touch()
    first.signal(signal.SIGCONT)
    await eventually(lambda: told_lost(first))
    # The second one's lease is untouched and nothing waits for a retry.
    assert await sizes(store) == {"leased": 1}
    (tmp_path / "go-second").touch()
    await eventually(lambda: empty(store))
    for process in (first, second):
        process.signal(signal.SIGTERM)
    assert (await ended(first), await ended(second)) == (0, 0)
    assert (told_lost(first), told_lost(second)) == (1, 0)
    assert Counter(what for _, what, *_ in notes(tmp_path))["began"] == 2


async def test_M2_QA9_QA3_jobs_of_a_killed_process_run_again_after_the_lease(
    store: Store, start: Start, tmp_path: Path
) -> None:
    producer = await queue(store)
    (job,) = await put(producer, "wait", [None], timeout=3 * 3600)
    first = start("first", LEASE_MS=1000)
    await eventually(lambda: notes(tmp_path))
    first.signal(signal.SIGKILL)
    assert await ended(first) == -signal.SIGKILL
    assert await sizes(store) == {"leased": 1}
    (tmp_path / "go-second").touch()
    start("second")
    await eventually(lambda: empty(store))
    assert [[worker, what] for worker, what, *_ in notes(tmp_path)] == [
        ["first", "began"],
        ["second", "began"],
        ["second", "ended"],
    ]
    assert {entry[2] for entry in notes(tmp_path)} == {job}


async def test_QA8_a_worker_that_restarts_under_its_name_goes_on_at_once(
    store: Store, start: Start, tmp_path: Path
) -> None:
    producer = await queue(store)
    await put(producer, "wait", [None])
    first = start("same")
    await eventually(lambda: notes(tmp_path))
    first.signal(signal.SIGKILL)
    await ended(first)
    (tmp_path / "go-same").touch()
    await put(producer, "note", range(0, 1))
    again = start("same")
    await eventually(lambda: empty(store))
    again.signal(signal.SIGTERM)
    assert await ended(again) == 0
    assert told_lost(again) == 0


async def test_T6_jobs_run_in_all_partitions_whatever_a_restarted_process_was_configured_with(
    store: Store, start: Start, tmp_path: Path
) -> None:
    producer = await queue(store, partitions=8)
    first = start("four", PARTITIONS=4, VERSION=1)
    await put(producer, "note", [0] * 40)
    await eventually(lambda: empty(store))
    first.signal(signal.SIGTERM)
    assert await ended(first) == 0
    await promote(store, QUEUE, 2, 4)
    await put(producer, "note", [0] * 40)
    second = start("eight", PARTITIONS=8, VERSION=1)
    await eventually(lambda: empty(store))
    second.signal(signal.SIGTERM)
    assert await ended(second) == 0
    ran = notes(tmp_path)
    assert len(ran) == len({entry[2] for entry in ran}) == 80
    assert {entry[3] for entry in ran if entry[0] == "four"} == {f"1:{n}" for n in range(8)}
    assert {entry[3] for entry in ran if entry[0] == "eight"} == {f"2:{n}" for n in range(4)}
    topology = await store.read_topology(QUEUE)
    assert topology is not None
    assert (topology.active, topology.partitions) == (2, 4)


async def test_J12_QA18_a_restart_of_redis_loses_nothing(
    start: Start, prefix: str, tmp_path: Path, process_guard: Guard
) -> None:
    with RedisServer(flavours()[0], persist=True, guard=process_guard) as server:
        store = open_store(server.url, prefix)
        producer = await queue(store, partitions=3)
        jobs = await put(producer, "note", [0.01] * 200)
        # The lease outlasts the outage: no job may run twice.
        worker = start("only", url=server.url, LEASE_MS=60_000)
        await eventually(lambda: len(notes(tmp_path)) >= 40)
        server.kill()
        await eventually(lambda: "does not answer" in worker.log.read_text())
        server.start()

        async def all_done() -> bool:
            try:
                return await empty(store)
            except StoreUnavailable:  # this test's own connection was cut as well
                return False

        await eventually(all_done)
        assert Counter(entry[2] for entry in notes(tmp_path)) == Counter(jobs)
        assert worker.running
        worker.signal(signal.SIGTERM)
        assert await ended(worker) == 0
        assert told_lost(worker) == 0
        await store.close()


def told(log: Path, part: str) -> int:
    """How often a part of the worker has told of the outage."""
    lines = log.read_text().splitlines()
    return sum(f"headrace.{part}: " in line and "does not answer" in line for line in lines)


async def answers(store: Store) -> bool:
    """Whether it does: the first call after an outage may meet a connection of before."""
    with contextlib.suppress(StoreUnavailable):
        return await store.read_topology(QUEUE) is not None
    return False


@pytest.mark.parametrize("gone", [False, True], ids=["stands still", "is gone"])
async def test_QF1_QF6_a_redis_that_does_not_answer_is_waited_for_quietly(
    start: Start, prefix: str, tmp_path: Path, process_guard: Guard, gone: bool
) -> None:
    """One that stands still takes its time over each call; one that is gone refuses at once, again and again."""
    with RedisServer(flavours()[0], persist=True, guard=process_guard) as server:
        store = open_store(server.url, prefix)
        producer = await queue(store)
        worker = start("only", url=server.url)
        await put(producer, "note", [0])
        await eventually(lambda: notes(tmp_path))
        (server.kill if gone else server.pause)()
        await eventually(lambda: told(worker.log, "worker") == 1)
        assert worker.pid is not None
        busy = cpu_seconds(worker.pid)
        await asyncio.sleep(4)  # what is measured is this time itself
        assert cpu_seconds(worker.pid) - busy < 1
        assert told(worker.log, "worker") == 1
        assert told(worker.log, "election") <= 1
        assert "rediss" not in worker.log.read_text()  # it has spoken with that server
        (server.start if gone else server.resume)()
        await eventually(lambda: "the store answers again" in worker.log.read_text())
        await eventually(lambda: answers(store))
        await put(producer, "note", [0])
        await eventually(lambda: len(notes(tmp_path)) == 2)
        await store.close()


async def test_J17_SIGTERM_hands_back_what_waits_and_ends_with_0(store: Store, start: Start, tmp_path: Path) -> None:
    producer = await queue(store)
    await put(producer, "wait", range(64))
    worker = start("only", "--queue-buffer", "60", "-c", "4", LEASE_MS=30_000)

    async def all_leased() -> bool:
        return len(notes(tmp_path)) == 4 and await sizes(store) == {"leased": 64}

    await eventually(all_leased)
    worker.signal(signal.SIGTERM)

    async def handed_back() -> bool:
        return await sizes(store) == {"leased": 4, "ready": 60}

    await eventually(handed_back)
    (tmp_path / "go-only").touch()
    assert await ended(worker) == 0
    assert await sizes(store) == {"ready": 60}
    assert (await only_job(store)).attempt == 0


async def test_a_second_signal_ends_a_worker_at_once(store: Store, start: Start, tmp_path: Path) -> None:
    producer = await queue(store)
    await put(producer, "wait", [None])
    worker = start("only", "--grace-seconds", "3600")
    await eventually(lambda: notes(tmp_path))
    worker.signal(signal.SIGTERM)
    await eventually(lambda: "stopping: 1 handler(s) still run" in worker.log.read_text())
    worker.signal(signal.SIGTERM)
    assert await ended(worker) == 0
    assert await sizes(store) == {"ready": 1}


async def test_QG2_J17_the_documented_plain_handler_that_returns_at_SIGTERM_is_handed_back(
    store: Store, start: Start, tmp_path: Path
) -> None:
    page = next(block for block in blocks(ROOT / "docs" / "handlers.md") if "ctx.cancelled" in block.text)
    (tmp_path / "documented.py").write_text(page.text)
    producer = await queue(store)
    await put(producer, "report", [{"pages": 1000}], timeout=3600)
    worker = start("only", "--grace-seconds", "0", application="documented:app")
    await eventually(lambda: "page 0" in worker.log.read_text())
    worker.signal(signal.SIGTERM)
    assert await ended(worker) == 0
    assert await sizes(store) == {"ready": 1}
    back = await only_job(store)
    assert (back.attempt, [entry.status for entry in back.history]) == (0, ["interrupted"])


async def test_QG3_a_handler_that_does_not_end_is_told_by_exit_code_1(
    store: Store, start: Start, tmp_path: Path
) -> None:
    producer = await queue(store)
    await put(producer, "deaf", [None])
    worker = start("only", "--grace-seconds", "0")
    await eventually(lambda: notes(tmp_path))
    worker.signal(signal.SIGINT)
    assert await ended(worker) == 1
    assert await sizes(store) == {"ready": 1}
    assert "1 handler(s) did not end when told to; their jobs are handed back" in worker.log.read_text()


async def test_the_url_may_come_from_a_file_and_its_password_is_never_logged(
    start: Start, prefix: str, tmp_path: Path, process_guard: Guard
) -> None:
    right, wrong = tmp_path / "right", tmp_path / "wrong"
    with RedisServer(flavours()[0], guard=process_guard) as server:
        setter = Redis.from_url(server.url)
        await setter.config_set("requirepass", "hunter2")
        await setter.aclose()
        right.write_text(server.url.replace("redis://", "redis://:hunter2@") + "\n")
        wrong.write_text(server.url.replace("redis://", "redis://:hunter3@") + "\n")
        store = open_store(right.read_text().strip(), prefix)
        producer = await queue(store)
        await put(producer, "note", [0])
        refused = start("refused", "--log-level", "debug", url="", REDIS_URL_FILE=wrong)
        await eventually(lambda: "refused the credentials" in refused.log.read_text())
        assert notes(tmp_path) == []
        admitted = start("admitted", "--log-level", "debug", url="", REDIS_URL_FILE=right)
        await eventually(lambda: empty(store))
        for process in (refused, admitted):
            process.signal(signal.SIGTERM)
            assert await ended(process) == 0
            assert "hunter" not in process.log.read_text()
        await store.close()


async def test_QF3_health_tells_a_working_worker_from_one_without_a_store(
    start: Start, prefix: str, tmp_path: Path, process_guard: Guard
) -> None:
    (port,) = free_ports(1)

    def ask(path: str) -> tuple[int, dict[str, Any]]:
        try:
            with urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
                return answer.status, json.load(answer)
        except OSError as error:
            if hasattr(error, "code"):
                return error.code, json.load(error)  # type: ignore[arg-type]
            return 0, {}

    async def answers(path: str, status: int) -> bool:
        return (await asyncio.to_thread(ask, path))[0] == status

    with RedisServer(flavours()[0], guard=process_guard) as server:
        await queue(store := open_store(server.url, prefix))
        worker = start("only", url=server.url, HEALTH_PORT=port, POD_IP="127.0.0.1")
        await eventually(lambda: answers("/readyz", 200))
        assert ask("/healthz")[1]["ok"] is True
        assert ask("/other")[0] == 404
        server.kill()
        # Not a reason for a restart: it would not bring the store back.
        await eventually(lambda: "does not answer" in worker.log.read_text())
        assert ask("/healthz")[0] == 200
        worker.signal(signal.SIGTERM)
        assert await ended(worker) == 0
        await store.close()


async def test_leftovers_of_a_worker_without_any_jobs_are_none(store: Store, start: Start) -> None:
    await queue(store)
    worker = start("only")
    await eventually(lambda: "worker only-" in worker.log.read_text())
    worker.signal(signal.SIGTERM)
    assert await ended(worker) == 0
    assert (await store.counts([PartitionRef(QUEUE, 1, 0)]))[0].live == 0
