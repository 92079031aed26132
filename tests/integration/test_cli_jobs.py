"""``headrace job list`` and ``describe`` on a real server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable

import pytest

from headrace import App, Context, Producer, RetryPolicy, Store, Worker, WorkerSettings
from headrace.cli.status import FRESH_MS
from headrace.envelope import encode_result, no_result
from headrace.lifecycle import configure, promote
from headrace.settings import QueueSettings, Retention
from headrace.statistics import summarise
from headrace.stores.base import Failure, Settled, Success
from headrace.topology import PartitionRef
from tests.integration.conftest import Run as Command

Run = Callable[..., Awaitable[tuple[int, str, str]]]
HERE = PartitionRef("emails", 1, 0)


@pytest.fixture
def run(run: Command) -> Run:
    async def call(*arguments: str) -> tuple[int, str, str]:
        return await asyncio.to_thread(run, *arguments)  # it has an event loop of its own

    return call


@pytest.fixture
async def store(store: Store) -> Store:
    await promote(store, "emails", 1, 1, settings=QueueSettings(retention=Retention()))
    return store


_seq = iter(range(1, 10_000))


async def lease(store: Store, id: str, type: str = "send") -> Settled:
    await Producer(store).enqueue("emails", type, {"to": id}, id=id)
    claim = await store.claim(HERE, "host-1", next(_seq), 1, 60_000)
    return Settled(claim.jobs[0].key, claim.token)


async def finish(store: Store, id: str, result: bytes = b"", type: str = "send") -> None:
    assert await store.ack(HERE, [await lease(store, id, type)], [Success(type, 0, result)]) == []


async def test_J19_finished_jobs_are_listed_newest_first(store: Store, run: Run) -> None:
    for number in range(4):
        await finish(store, f"job-{number}", encode_result(number), "odd" if number % 2 else "even")
    code, out, _ = await run("job", "list", "emails", "--state", "succeeded", "--limit", "3")
    header, *lines = out.splitlines()
    assert code == 0
    assert header.split() == ["NAME", "TYPE", "PARTITION", "RUNS", "WORKER", "AGE"]
    assert [line.split()[:5] for line in lines] == [
        ["job-3", "odd", "1:0", "1", "host-1"],
        ["job-2", "even", "1:0", "1", "host-1"],
        ["job-1", "odd", "1:0", "1", "host-1"],
    ]
    code, out, _ = await run("job", "list", "emails", "--type", "even", "--oldest-first", "-o", "json")
    assert [(job["id"], job["result"], job["state"]) for job in json.loads(out)] == [
        ("job-0", 0, "succeeded"),
        ("job-2", 2, "succeeded"),
    ]


async def test_the_list_of_jobs_points_to_that_of_dead_letters(store: Store, run: Run) -> None:
    code, _, error = await run("job", "list", "emails", "--state", "dead")
    assert (code, "headrace dead list QUEUE" in error) == (1, True)
    code, _, error = await run("job", "list", "emails", "--state", "done")
    assert (code, "'done' is not one of scheduled, ready," in error) == (1, True)


async def test_a_queue_that_keeps_none_says_how_to_change_that(store: Store, run: Run) -> None:
    await configure(store, "emails", QueueSettings())
    code, _, error = await run("job", "list", "emails")
    assert code == 1
    assert "keeps no finished jobs, so there are none to list" in error
    assert "set spec.retention" in error
    assert "give --state scheduled, ready, leased, retry_wait, parked" in error


async def test_M13_a_live_job_is_described_with_its_attempts_and_history(store: Store, run: Run) -> None:
    await store.fail(HERE, [Failure(*await lease(store, "a"), 3_600_000, "no such host\n  file.py:1")])
    code, out, _ = await run("job", "describe", "emails", "a")
    fields = {line.split()[0]: line.split(maxsplit=1)[1] for line in out.splitlines()[1:]}
    assert code == 0
    assert (fields["STATE"], fields["ATTEMPT"], fields["TYPE"]) == ("retry_wait", "1", "send")
    assert fields["PAYLOAD"] == '{"to": "a"}'
    assert not {"RESULT_IS_HEX", "PAYLOAD_IS_HEX"} & fields.keys()
    assert out.splitlines()[-1].endswith("failed on host-1 no such host")
    described = json.loads((await run("job", "describe", "emails", "a", "-o", "json"))[1])
    assert [(entry["status"], entry["error"]) for entry in described["history"]] == [
        ("failed", "no such host\n  file.py:1")
    ]


async def test_the_progress_of_a_running_job_is_shown(store: Store, run: Run) -> None:
    began, may_end = asyncio.Event(), asyncio.Event()
    application = App()

    @application.handler("export")
    async def export(ctx: Context, payload: object) -> None:
        ctx.progress(0.4, "page 4 of 10")
        began.set()
        await may_end.wait()

    retry = RetryPolicy(max_retries=1, strategy="linear", base_ms=5)
    await Producer(store).enqueue("emails", "export", id="a", retry=retry)
    worker = Worker(application, store, WorkerSettings(queues=("emails",), worker_id="host-1"))
    running = asyncio.create_task(worker.run())
    try:
        await began.wait()
        async with asyncio.timeout(60):
            while not (described := json.loads((await run("job", "describe", "emails", "a", "-o", "json"))[1]))[
                "progress"
            ]:
                await asyncio.sleep(0.01)
        _, out, _ = await run("job", "describe", "emails", "a")
    finally:
        may_end.set()
        await worker.stop()
        await running
    assert (described["state"], described["progress"]["value"], described["progress"]["note"]) == (
        "leased",
        0.4,
        "page 4 of 10",
    )
    assert described["retry"] == retry.model_dump()
    (line,) = [line for line in out.splitlines() if line.startswith("PROGRESS")]
    assert line.split(maxsplit=1)[1].startswith("0.4 page 4 of 10 (")


async def test_M13_a_job_that_has_ended_is_described_by_what_is_kept_of_it(store: Store, run: Run) -> None:
    await finish(store, "done", encode_result({"sent": 2}))
    await finish(store, "large", no_result("has 99 bytes"))
    await store.fail(HERE, [Failure(*await lease(store, "dead"), None, "boom")])
    told = [await run("job", "describe", "emails", id, "-o", "json") for id in ("done", "large", "dead")]
    done, large, dead = (json.loads(out) for _, out, _ in told)
    assert (done["state"], done["result"], done["worker"], done["attempt"]) == ("succeeded", {"sent": 2}, "host-1", 0)
    assert "has 99 bytes" in large["result_problem"]
    assert (dead["state"], dead["error"], dead["attempt"], dead["payload"]) == ("dead", "boom", 1, {"to": "dead"})
    code, _, error = await run("job", "describe", "emails", "never")
    assert code == 1
    assert "job never is unknown" in error


async def test_the_status_is_the_leaders_sum_while_it_is_fresh(store: Store, run: Run) -> None:
    await lease(store, "a")
    summed = await summarise(store, "emails")
    assert summed is not None
    await lease(store, "b")
    shown = (await run("status", "emails"))[1].splitlines()[1].split()
    read = (await run("status", "emails", "--verbose"))[1].splitlines()[1].split()
    now = await store.read_stats("emails")
    assert now is not None
    if now.age_ms <= FRESH_MS:  # else the machine was slow, and the partitions were read
        assert (shown[6], read[6]) == ("1", "2")
    told = json.loads((await run("status", "emails", "-o", "json"))[1])
    assert told["versions"][0]["leased"] == 2
    assert told["counters"]["enqueued"] == 1
    await configure(store, "emails", QueueSettings(timeout_ms=1))
    assert (await run("status", "emails"))[1].splitlines()[1].split()[6] == "2"  # the topology is another one
