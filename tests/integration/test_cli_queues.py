"""``headrace queue list``, ``describe``, ``pause``, ``resume``, ``purge``; ``job cancel``, ``delete``, ``retry``."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from headrace import App, Context, JobSpec, Producer, Store, Worker, WorkerSettings
from headrace.lifecycle import configure, promote
from headrace.settings import QueueSettings, Retention
from headrace.statistics import summarise
from headrace.stores.base import Failure, Settled, Success, Unknown
from headrace.topology import PartitionRef
from tests.integration.conftest import Run as Command
from tests.integration.terminal import at_a_terminal

Run = Callable[..., Awaitable[tuple[int, str, str]]]
HERE = PartitionRef("emails", 1, 0)


@pytest.fixture
def run(run: Command) -> Run:
    async def call(*arguments: str) -> tuple[int, str, str]:
        return await asyncio.to_thread(run, *arguments)  # it has an event loop of its own

    return call


async def told(run: Run, *arguments: str, code: int = 0) -> Any:
    """What a command says as JSON."""
    ended, out, error = await run(*arguments, "-o", "json")
    assert (ended, error if code == 0 else "") == (code, "")
    return json.loads(out)


@pytest.fixture
async def store(store: Store) -> Store:
    """A job in each state, named after it."""
    await promote(store, "emails", 1, 1, settings=QueueSettings(retention=Retention()))
    producer = Producer(store)
    for number, state in enumerate(("done", "dead", "retry", "parked", "leased"), 1):
        await producer.enqueue("emails", "send" if number % 2 else "render", id=state)
        claim = await store.claim(HERE, "w", number, 1, 600_000)
        mine = Settled(claim.jobs[0].key, claim.token)
        match state:
            case "done":
                await store.ack(HERE, [mine], [Success("send", 0)])
            case "dead":
                await store.fail(HERE, [Failure(*mine, None, "boom")])
            case "retry":
                await store.fail(HERE, [Failure(*mine, 600_000, "boom")])
            case "parked":
                await store.park(HERE, [Unknown(*mine, "render")])
    await producer.enqueue("emails", "send", id="ready")
    await producer.enqueue("emails", "send", id="scheduled", delay=600)
    return store


async def test_queues_are_listed_and_described(store: Store, run: Run) -> None:
    await promote(store, "reports", 1, 4)
    (emails, reports) = await told(run, "queue", "list")
    assert (emails["name"], emails["state"], emails["active"], emails["owner"]) == ("emails", "running", 1, None)
    held = {"ready": 1, "scheduled": 1, "retry": 1, "leased": 1, "parked": 1, "dead": 1}
    assert emails["depth"] == held
    assert (reports["name"], reports["partitions"], sum(reports["depth"].values())) == ("reports", 4, 0)
    assert (await run("queue", "list", "-o", "name"))[1].split() == ["emails", "reports"]
    lines = (await run("queue", "list", "-o", "jsonl"))[1].splitlines()
    assert [json.loads(line)["name"] for line in lines] == ["emails", "reports"]
    assert (await run("queue", "describe", "emails", "-o", "name"))[1] == "emails\n"
    assert (await run("job", "list", "emails", "--state", "leased", "-o", "name"))[1] == "leased\n"
    code, out, _ = await run("queue", "list")
    header, *lines = out.splitlines()
    assert (code, header.split()[:4]) == (0, ["NAME", "STATE", "VERSION", "PARTITIONS"])
    assert [line.split()[0] for line in lines] == ["emails", "reports"]
    described = await told(run, "queue", "describe", "emails")
    assert described["depth"] == held
    assert described["settings"]["retention"]["done_count"] == 1000
    assert described["parked_types"] == {"render": 1}
    assert described["versions"] == {"1": {"partitions": 1, "state": "active"}}
    code, out, _ = await run("queue", "describe", "emails")
    assert code == 0
    fields = {line.split()[0]: line.split(maxsplit=1)[1] for line in out.splitlines()[1:]}
    assert fields["PARKED_TYPES"] == "render=1"
    assert fields["VERSIONS"] == "1.partitions=1, 1.state=active"
    assert "retention.done_count=1000" in fields["SETTINGS"].split(", ")
    assert not set(out) & set("{}[]")
    code, _, error = await run("queue", "describe", "nobody")
    assert code == 1
    assert "queue 'nobody' does not exist" in error


async def test_live_jobs_are_listed_by_state(store: Store, run: Run) -> None:
    for state in ("scheduled", "ready", "leased", "parked"):
        (job,) = await told(run, "job", "list", "emails", "--state", state)
        assert (job["id"], job["state"], job["partition"], job["error"]) == (state, state, 0, "")
        assert (job["at"] is not None) == (state in ("scheduled", "leased"))
        assert job["worker"] == ("w" if state == "leased" else None)
    (job,) = await told(run, "job", "list", "emails", "--state", "retry_wait")
    assert (job["id"], job["attempt"], job["error"]) == ("retry", 1, "boom")
    await Producer(store).enqueue_many("emails", [JobSpec("send", n, id=f"{n:03}") for n in range(250)])
    listed = await told(run, "job", "list", "emails", "--state", "ready", "--limit", "1000")
    assert [job["id"] for job in listed] == ["ready", *(f"{n:03}" for n in range(250))]
    assert await told(run, "job", "list", "emails", "--state", "ready", "--type", "render") == []
    code, out, _ = await run("job", "list", "emails", "--state", "leased")
    header, line = out.splitlines()
    assert (code, header.split()) == (0, ["NAME", "TYPE", "PARTITION", "RUNS", "UNTIL", "WORKER", "AGE"])
    assert line.split()[:4] == ["leased", "send", "1:0", "0"]


async def test_J21_a_pause_by_hand_starts_no_job_and_can_be_taken_back(store: Store, run: Run) -> None:
    leased = (await store.resume(HERE, "w", 5, 600_000)).jobs
    paused = await told(run, "queue", "pause", "emails")
    assert paused == {"queue": "emails", "state": "paused", "changed": True, "where": "topology"}
    assert (await store.claim(HERE, "w", 100, 10, 600_000)).jobs == []
    await Producer(store).enqueue("emails", "send", id="more")
    assert await store.ack(HERE, [Settled(leased[0].key, b"w:5")]) == []  # what ran has ended
    assert (await run("queue", "pause", "emails", "--error-unchanged"))[0] == 3
    assert (await told(run, "queue", "list"))[0]["state"] == "paused"
    assert (await told(run, "status", "emails"))["state"] == "paused"
    for options in ([], ["--verbose"]):  # what the leader has summed up, or what the partitions say
        assert await summarise(store, "emails") is not None
        assert "active, paused" in (await run("status", "emails", *options))[1].splitlines()[1]
    assert (await told(run, "queue", "resume", "emails"))["changed"]
    assert "paused" not in (await run("status", "emails"))[1]
    assert (await run("queue", "resume", "emails", "--error-unchanged"))[0] == 3
    assert len((await store.claim(HERE, "w", 101, 10, 600_000)).jobs) == 2
    topology = await store.read_topology("emails")
    assert topology is not None
    assert topology.settings == QueueSettings(retention=Retention())


async def test_a_queue_that_runs_dry_is_not_paused_unseen(store: Store, run: Run) -> None:
    await configure(store, "emails", QueueSettings(stop="hold_and_drain"))
    code, _, error = await run("queue", "pause", "emails")
    assert code == 1
    assert "resume it first" in error
    assert (await told(run, "queue", "resume", "emails"))["changed"]


async def test_the_pause_of_an_owned_queue_belongs_to_its_object(
    store: Store, run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Without access to Kubernetes nothing is changed, and what to do is said."""
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    monkeypatch.setenv("HOME", str(tmp_path))
    await configure(store, "emails", QueueSettings(), {"namespace": "shop", "name": "mails", "uid": "1"})
    code, _, error = await run("queue", "pause", "emails")
    assert code == 1
    assert "belongs to the Queue object shop/mails" in error
    assert "kubectl -n shop patch queue mails --type=merge" in error
    topology = await store.read_topology("emails")
    assert topology is not None
    assert topology.settings.stop == "none"


async def test_a_purge_counts_asks_and_removes_what_was_asked_for(store: Store, run: Run) -> None:
    code, _, error = await run("queue", "purge", "emails")
    assert (code, "give a filter" in error) == (1, True)
    assert (await run("queue", "purge", "emails", "--all", "--type", "send"))[0] == 1
    code, _, error = await run("queue", "purge", "emails", "--state", "ready")
    assert (code, "without a terminal give --yes" in error) == (1, True)
    for wrong in (("--state", "leased"), ("--older-than", "soon"), ("--version", "9")):
        assert (await run("queue", "purge", "emails", *wrong, "--dry-run"))[0] == 1
    found = await told(run, "queue", "purge", "emails", "--type", "send", "--dry-run")
    assert found == {
        "queue": "emails",
        "removed": False,
        "jobs": {"scheduled": 1, "ready": 1, "retry_wait": 1},
        "total": 3,
    }
    code, out, _ = await run("queue", "purge", "emails", "--older-than", "1h", "--dry-run")
    assert (code, out.split()) == (0, ["STATE", "MATCHING", "all", "0"])
    found = await told(run, "queue", "purge", "emails", "--state", "retry", "--state", "dead", "--yes")
    assert (found["removed"], found["jobs"]) == (True, {"retry_wait": 1, "dead": 1})
    code, out, _ = await run("queue", "purge", "emails", "--all", "--yes")
    assert (code, "succeeded" in out) == (0, True)
    (counts,) = await store.counts([HERE])
    assert counts.nonempty() == {"leased": 1}


def test_a_person_types_the_name_to_purge_everything(run: Run, store: Store, server_url: str, prefix: str) -> None:
    given = ("queue", "purge", "emails", "--redis-url", server_url, "--prefix", prefix)
    assert at_a_terminal((*given, "--all"), "to go on", "reports\n")[0] == 2
    code, shown = at_a_terminal((*given, "--state", "ready"), "[y/N]", "y\n")
    assert (code, "remove 1 ready job(s) of queue emails?" in shown) == (0, True)


async def test_jobs_are_cancelled_deleted_and_retried(store: Store, run: Run) -> None:
    found = await told(run, "job", "cancel", "emails", "scheduled", "retry", "nobody", code=1)
    assert [(job["id"], job["state"], job["result"]) for job in found] == [
        ("scheduled", "scheduled", "cancelled"),
        ("retry", "retry_wait", "cancelled"),
        ("nobody", "unknown", "unchanged"),
    ]
    assert (await told(run, "job", "cancel", "emails", "leased", "--waiting-only", code=1))[0]["result"] == "unchanged"
    code, _, error = await run("job", "delete", "emails", "leased", "--yes")
    assert (code, "headrace job cancel emails leased" in error) == (1, True)
    assert (await told(run, "job", "cancel", "emails", "leased"))[0]["result"] == "cancelled"
    code, _, error = await run("job", "delete", "emails", "parked")
    assert (code, "without a terminal give --yes" in error) == (1, True)
    assert (await told(run, "job", "delete", "emails", "parked", "--yes"))[0]["state"] == "parked"
    assert (await told(run, "job", "retry", "emails", "dead"))[0]["result"] == "enqueued"
    assert (await told(run, "job", "retry", "emails", "dead", code=1))[0]["state"] == "ready"
    assert (await told(run, "job", "retry", "emails", "done", code=1))[0]["state"] == "succeeded"
    (counts,) = await store.counts([HERE])
    assert counts.nonempty() == {"ready": 2}


async def test_J4_the_handler_of_a_cancelled_job_is_told_to_stop(
    store: Store, run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    """By its renewal; what it does in spite of that counts for nothing, and the worker goes on."""
    caplog.set_level("INFO", "headrace.worker")
    app, began, ended = App(), asyncio.Event(), asyncio.Event()

    @app.handler("send")
    async def send(ctx: Context, payload: Any) -> None:
        if ctx.job.id == "long":
            began.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()

    await promote(store, "reports", 1, 1, settings=QueueSettings(lease_ms=600, retention=Retention()))
    producer = Producer(store)
    await producer.enqueue("reports", "send", id="long", timeout=600)
    worker = Worker(app, store, WorkerSettings(queues=("reports",), concurrency=1, health_port=0))
    working = asyncio.create_task(worker.run())
    async with asyncio.timeout(60):
        await began.wait()
        assert (await told(run, "job", "cancel", "reports", "long"))[0]["state"] == "leased"
        await ended.wait()
        await producer.enqueue("reports", "send", id="after")
        assert await producer.result("reports", "after") is None
        assert (await producer.status("reports", "long")).state == "unknown"
        await worker.stop()
        await working
    assert "queue reports: 1 job(s) that ran are there no more: cancelled, or removed with the queue" in caplog.text
    assert "are lost" not in caplog.text


async def test_J21_a_queue_whose_deletion_was_interrupted_is_shown_as_being_deleted(store: Store, run: Run) -> None:
    topology = await store.read_topology("emails")
    assert topology is not None
    assert await store.write_topology(topology, topology.condemned())
    assert (await told(run, "status", "emails"))["state"] == "deleting"
    for options in ([], ["--verbose"]):
        assert "active, deleting" in (await run("status", "emails", *options))[1].splitlines()[1]
    assert (await told(run, "queue", "list"))[0]["state"] == "deleting"
