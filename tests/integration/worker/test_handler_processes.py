"""Handlers in processes of their own: what they are given, and that whatever ends one of them ends that run only."""

from __future__ import annotations

import asyncio
import ctypes
import importlib
import logging
import os
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from headrace import App, Context, InvalidInput, ProcessFailed, Producer, QueueSettings, Worker
from headrace.dead_letters import dead_jobs
from headrace.envelope import decode_result
from headrace.errors import ResultNotKept
from headrace.ids import encode_id
from headrace.job import Job
from headrace.lifecycle import promote
from headrace.settings import Retention
from headrace.stores.base import Failure
from headrace.stores.memory import MemoryStore
from headrace.testing import TestQueue
from headrace.topology import PartitionRef
from headrace.worker.processes import pool
from tests.integration.worker.process_handlers import app, plain, spreading
from tests.integration.worker.processes import noted, runs
from tests.integration.worker.support import QUEUE, Running, eventually, only_job, put, queue, settings, sizes, working


@pytest.fixture
async def store() -> MemoryStore:
    return MemoryStore()


async def dead(store: MemoryStore) -> Job:
    (letter,) = [each async for each in dead_jobs(store, QUEUE)]
    assert letter.job is not None
    return letter.job


async def test_a_handler_in_a_process_is_given_payload_headers_and_context(store: MemoryStore, tmp_path: Path) -> None:
    producer = await queue(store, partitions=3)
    path = tmp_path / "notes"
    async with working(app, store) as running:
        first = await producer.enqueue(QUEUE, "plain", {"path": str(path), "n": 1}, id="a", headers={"trace": "t"})
        await eventually(lambda: len(noted(path)) == 1)
        second = await producer.enqueue(QUEUE, "async", {"path": str(path), "text": "typed"}, timeout=7)
        await producer.enqueue(QUEUE, "raw", str(path).encode())
        await eventually(lambda: running.told.outcomes == {"succeeded": 3})
    of = {note["payload"] if isinstance(note["payload"], str) else "plain": note for note in noted(path)}
    assert of["plain"]["payload"] == {"path": str(path), "n": 1}
    assert (of["plain"]["id"], of["plain"]["headers"]) == ("a", {"trace": "t"})
    assert of["plain"]["place"] == [QUEUE, first.version, first.partition]
    assert 0 < of["plain"]["left"] <= 30
    assert (of["typed"]["id"], of["typed"]["attempt"]) == (second.id, 0)
    assert 0 < of["typed"]["left"] <= 7
    assert all(note["current"] for note in (of["plain"], of["typed"]))
    assert repr(str(path).encode()) in of
    assert os.getpid() not in {note["pid"] for note in noted(path)}


async def test_QB6_a_process_is_killed_at_the_timeout_with_all_it_has_started_and_replaced(
    store: MemoryStore, tmp_path: Path
) -> None:
    producer = await queue(store)
    path = tmp_path / "notes"
    async with working(app, store, concurrency=1) as running:
        await put(producer, "busy", [{"path": str(path)}], timeout=1)
        await eventually(lambda: running.told.outcomes == {"dead": 1})
        await put(producer, "plain", [{"path": str(path)}])
        await eventually(lambda: running.told.outcomes == {"dead": 1, "succeeded": 1})
        job = await dead(store)
    assert (job.last_error, job.history[-1].status) == ("timed out after 1000 ms", "timed out")
    first, second = noted(path)
    await eventually(lambda: not runs(first["pid"]) and not runs(first["child"]))
    assert second["pid"] != first["pid"]


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ("SIGKILL", r"was killed by SIGKILL \(exit code 137\) on emails-7, node n1"),
        ("SIGSEGV", r"was killed by SIGSEGV \(exit code 139\) on emails-7, node n1"),
        ("3", r"ended with exit code 3 on emails-7, node n1"),
    ],
)
async def test_QH4_QA12_a_process_that_dies_fails_its_run_only_and_tells_signal_exit_code_pod_and_node(
    store: MemoryStore,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    how: str,
    told: str,
) -> None:
    monkeypatch.setenv("POD_NAME", "emails-7")
    monkeypatch.setenv("NODE_NAME", "n1")
    producer = await queue(store)
    path, neighbour = tmp_path / "notes", tmp_path / "neighbour"
    async with working(app, store) as running:
        await put(producer, "wait", [{"path": str(neighbour)}])
        await eventually(lambda: noted(neighbour))
        await put(producer, "die", [{"path": str(path), "text": how}])
        await eventually(lambda: running.told.outcomes == {"dead": 1})
        (tmp_path / "neighbour.go").touch()
        await eventually(lambda: running.told.outcomes == {"dead": 1, "succeeded": 1})
        job = await dead(store)
    assert re.fullmatch(f"the process of its handler {told}", job.last_error)
    assert (job.attempt, job.expiries, [entry.error for entry in job.history]) == (1, 0, [job.last_error])
    assert re.search(f"the process of the handler of 'die' {told}", caplog.text)
    assert [note["what"] for note in noted(neighbour)] == ["began", "ended"]
    assert len(noted(path)) == 1


async def test_a_process_that_dies_is_noticed_although_another_one_holds_its_connection(
    store: MemoryStore, tmp_path: Path
) -> None:
    """What it has forked is killed with it, and leaves no zombie where this process inherits it."""
    producer = await queue(store)
    path = tmp_path / "notes"
    with inheriting_orphans():
        async with working(app, store) as running:
            await put(producer, "fork", [{"path": str(path)}], timeout=3600)
            await eventually(lambda: running.told.outcomes == {"dead": 1})
            assert "ended with exit code 5" in (await dead(store)).last_error
            forked = noted(path)[0]["pid"]
            await eventually(lambda: not Path(f"/proc/{forked}").exists())


@contextmanager
def inheriting_orphans() -> Iterator[None]:
    """Make this process the one that orphaned descendants are left to, as the first of a container is."""
    libc, set_child_subreaper = ctypes.CDLL(None, use_errno=True), 36
    assert libc.prctl(set_child_subreaper, 1, 0, 0, 0) == 0
    try:
        yield
    finally:
        assert libc.prctl(set_child_subreaper, 0, 0, 0, 0) == 0


@pytest.mark.parametrize(
    ("payload", "outcome", "told"),
    [
        ("value", "dead", r"ValueError: no luck\n.*process_handlers.py:\d+ in raises"),
        ("local", "dead", r"Local: of a class that nobody else knows\n.*process_handlers.py:\d+ in raises"),
        ("forgotten", "dead", r"TypeError: the run returned the coroutine 'sleep' instead of awaiting it.*"),
        ("exit", "dead", r"SystemExit: 3\n.*process_handlers.py:\d+ in raises"),
        ("dead", "dead", "there is no such address"),
        ("retry", "dead", "the other side is busy"),
        ("snooze", "snoozed", ""),
    ],
)
async def test_what_a_handler_raises_decides_as_it_does_anywhere_else(
    store: MemoryStore, payload: str, outcome: str, told: str
) -> None:
    producer = await queue(store)
    async with working(app, store) as running:
        await put(producer, "raise", [payload])
        await eventually(lambda: running.told.outcomes == {outcome: 1})
    if outcome == "dead":
        assert re.fullmatch(told, (await dead(store)).last_error, re.DOTALL)
    else:
        assert await sizes(store) == {"retry": 1}


async def test_a_payload_that_does_not_fit_is_dead_at_once_here_too(store: MemoryStore, tmp_path: Path) -> None:
    producer = await queue(store)
    async with working(app, store) as running:
        await put(producer, "wait", [{"text": 1}], max_retries=5)
        await eventually(lambda: running.told.outcomes == {"dead": 1})
    assert (await dead(store)).last_error == "invalid payload: path (missing), text (string_type)"


async def test_a_process_without_memory_fails_its_run_only(store: MemoryStore, tmp_path: Path) -> None:
    """A limit that the process has itself: the handler gets a MemoryError, and the process goes on."""
    producer = await queue(store)
    path = tmp_path / "notes"
    async with working(app, store, concurrency=1) as running:
        await put(producer, "limited", [{"path": str(path)}])
        await eventually(lambda: running.told.outcomes == {"dead": 1})
        assert (await dead(store)).last_error.startswith("MemoryError")
        await put(producer, "plain", [{"path": str(path)}])
        await eventually(lambda: running.told.outcomes == {"dead": 1, "succeeded": 1})


async def test_a_process_that_dies_between_two_calls_costs_no_run(store: MemoryStore, tmp_path: Path) -> None:
    producer = await queue(store)
    path = tmp_path / "notes"
    async with working(app, store, concurrency=1) as running:
        await put(producer, "plain", [{"path": str(path)}])
        await eventually(lambda: running.told.outcomes == {"succeeded": 1})
        os.kill(noted(path)[0]["pid"], signal.SIGKILL)
        await put(producer, "plain", [{"path": str(path)}])
        await eventually(lambda: running.told.outcomes == {"succeeded": 2})
    first, second = noted(path)
    assert first["pid"] != second["pid"]


async def test_J4_a_process_whose_lease_is_lost_is_killed(store: MemoryStore, tmp_path: Path) -> None:
    producer = await queue(store)
    path = tmp_path / "notes"
    async with working(app, store, lease_ms=500) as running:
        await put(producer, "busy", [{"path": str(path)}], timeout=3600)
        await eventually(lambda: noted(path))
        (execution,) = running.worker._executor.running
        key, token = execution.settled
        await store.fail(execution.batch.ref, [Failure(key, token, None, "as if it had been taken away")])
        await eventually(lambda: running.told.lost == 1)
        await eventually(lambda: not runs(noted(path)[0]["pid"]))
        await eventually(lambda: not running.worker._executor.running)


async def test_QG1_processes_may_finish_in_the_grace_time(store: MemoryStore, tmp_path: Path) -> None:
    producer = await queue(store)
    path = tmp_path / "notes"
    async with working(app, store, grace_seconds=20) as running:
        await put(producer, "wait", [{"path": str(path)}])
        await eventually(lambda: noted(path))
        stopping = asyncio.create_task(running.stop())
        (tmp_path / "notes.go").touch()
        assert (await stopping).clean
        assert running.told.outcomes == {"succeeded": 1}
    assert not runs(noted(path)[0]["pid"])


async def test_QG2_QG3_a_process_that_goes_on_is_killed_and_its_job_handed_back(
    store: MemoryStore, tmp_path: Path
) -> None:
    producer = await queue(store)
    path = tmp_path / "notes"
    async with working(app, store, grace_seconds=0) as running:
        await put(producer, "busy", [{"path": str(path)}], timeout=3600)
        await eventually(lambda: noted(path))
        assert (await running.stop()).clean
        assert running.told.outcomes == {"interrupted": 1}
    assert not runs(noted(path)[0]["pid"])
    await eventually(lambda: not runs(noted(path)[0]["child"]))
    assert (await only_job(store)).attempt == 0


async def test_log_records_are_written_by_the_worker_with_the_job(
    store: MemoryStore, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    producer = await queue(store)
    with caplog.at_level(logging.INFO):
        async with working(app, store) as running:
            (job,) = await put(producer, "log", [None])
            await eventually(lambda: running.told.outcomes == {"succeeded": 1})
    records = [record for record in caplog.records if record.name == "shop.orders"]
    assert [record.getMessage() for record in records] == ["order 7 is placed", "it went wrong"]
    assert vars(records[0]) | {"job_id": job, "type": "log", "customer": "ada", "items": "[1, 2]"} == vars(records[0])
    assert records[0].process != os.getpid()
    assert "ValueError: no luck" in (records[1].exc_text or "")
    assert capfd.readouterr().out == "printed by a handler\n"


async def test_middleware_is_around_a_process_and_may_change_the_payload(store: MemoryStore, tmp_path: Path) -> None:
    producer = await queue(store)
    path = tmp_path / "notes"
    async with working(spreading, store) as running:
        await put(producer, "plain", [{"path": str(path)}])
        await eventually(lambda: running.told.outcomes == {"succeeded": 1})
    before, ran = noted(path)
    assert (before["what"], before["pid"]) == ("middleware", os.getpid())
    assert 0 < before["left"] <= 30
    assert ran["payload"] == {"path": str(path), "marked": True}


async def test_processes_without_work_are_ended_but_for_one(
    store: MemoryStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "IDLE_SECONDS", 0.05)
    producer = await queue(store)
    paths = [tmp_path / name for name in "abc"]
    async with working(app, store) as running:
        await put(producer, "wait", [{"path": str(path)} for path in paths])
        await eventually(lambda: all(noted(path) for path in paths))
        for path in paths:
            path.with_suffix(".go").touch()
        await eventually(lambda: running.told.outcomes == {"succeeded": 3})
        pids = {noted(path)[0]["pid"] for path in paths}
        assert len(pids) == 3
        await eventually(lambda: sum(runs(pid) for pid in pids) == 1)
    assert not any(runs(pid) for pid in pids)


async def test_a_process_reports_its_progress_and_knows_its_fencing_token(store: MemoryStore, tmp_path: Path) -> None:
    producer = await queue(store)
    path = tmp_path / "notes"
    async with working(app, store) as running:
        await put(producer, "report", [{"path": str(path)}])
        await eventually(lambda: noted(path))
        (execution,) = running.worker._executor.running
        await eventually(lambda: getattr(execution, "report", None) == (9999.0, "page 9999"))
        assert noted(path)[0]["fence"] == execution.fencing_token > 0
        (tmp_path / "notes.go").touch()
        await eventually(lambda: running.told.outcomes == {"dead": 1})
    job = await dead(store)
    assert job.progress is not None
    assert (job.progress.value, job.progress.note) == (10_000, "the end")


async def test_a_batch_runs_in_one_process_with_an_outcome_for_each_job(store: MemoryStore, tmp_path: Path) -> None:
    producer = await queue(store)
    path = tmp_path / "notes"
    async with working(app, store) as running:
        texts = ["well", "dead", "snooze"]
        ids = await put(producer, "many", [{"path": str(path), "text": text} for text in texts])
        await eventually(lambda: running.told.outcomes == {"succeeded": 1, "dead": 1, "snoozed": 1})
        await put(producer, "many", [{"path": str(path), "text": "fail"}, {"text": 1}, {"path": str(path)}])
        await eventually(lambda: running.told.outcomes == {"succeeded": 2, "dead": 3, "snoozed": 1})
        await put(producer, "many", [{"path": str(path), "text": text} for text in ("well", "die")])
        await eventually(lambda: running.told.outcomes == {"succeeded": 2, "dead": 5, "snoozed": 1})
    first, second, _ = noted(path)
    assert (first["ids"], first["texts"]) == (ids, texts)
    assert 0 < first["left"] <= 30
    assert second["texts"] == ["fail", ""]
    letters = [letter.job async for letter in dead_jobs(store, QUEUE) if letter.job]
    errors = sorted(job.last_error.partition("\n")[0] for job in letters)
    died = [error for error in errors if error.startswith("the process of its handler ended with exit code 3")]
    assert len(died) == 2
    assert errors == ["ValueError: no luck", "gone", "invalid payload: path (missing), text (string_type)", *died]


async def test_what_a_process_returns_is_kept_and_what_cannot_be_says_why(
    store: MemoryStore, caplog: pytest.LogCaptureFixture
) -> None:
    await promote(store, QUEUE, 1, 1, settings=QueueSettings(retention=Retention()))
    producer = Producer(store)
    wanted = ("json", "bytes", "object", "large", "nothing")
    async with working(app, store) as running:
        ids = dict(zip(wanted, await put(producer, "return", wanted), strict=True))
        await eventually(lambda: running.told.outcomes == {"succeeded": 5})
    page = await store.finished(PartitionRef(QUEUE, 1, 0))
    found = {job.stored_id: job.result for batch in page for job in batch.jobs}
    results = {name: found[encode_id(id)] for name, id in ids.items()}
    assert decode_result(results["json"]) == {"n": [1, None]}
    assert decode_result(results["bytes"]) == b"\x00\xff"
    assert decode_result(results["nothing"]) is None
    with pytest.raises(ResultNotKept, match="object is no JSON value"):
        decode_result(results["object"])
    with pytest.raises(ResultNotKept, match="has 100002 bytes, the limit is 65536"):
        decode_result(results["large"])
    assert "(return) is not kept: it " in caplog.text


async def test_the_testing_kit_runs_them_too(tmp_path: Path) -> None:
    path = tmp_path / "notes"
    async with TestQueue(app, within=30) as kit:
        await kit.enqueue("plain", {"path": str(path)}, delay=60)
        (run,) = await kit.advance(minutes=1)
    assert run.outcome == "succeeded"
    assert noted(path)[0]["id"] == run.job.id


# ---- what is refused -------------------------------------------------------------------------------------------------


async def test_a_module_that_another_process_cannot_import_ends_the_worker_before_it_takes_a_job(
    store: MemoryStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "only_here_for_test.py").write_text(
        "import os\nif os.environ['MAIN_PROCESS'] != str(os.getpid()):\n    raise RuntimeError('not here')\n"
        "def handle(ctx, payload): ...\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("MAIN_PROCESS", str(os.getpid()))
    unfit = App()
    unfit.handler("send", process=True)(importlib.import_module("only_here_for_test").handle)
    producer = await queue(store)
    await put(producer, "send", [None])
    with pytest.raises(ProcessFailed, match="a process for handlers could not import the handlers: RuntimeError: not"):
        await Worker(unfit, store, settings()).run()
    assert await sizes(store) == {"ready": 1}


async def test_a_function_that_is_not_what_its_name_leads_to_is_refused_at_the_start(store: MemoryStore) -> None:
    def decorated(ctx: Context, payload: Any) -> None: ...

    decorated.__qualname__, decorated.__module__ = plain.__qualname__, plain.__module__
    unfit = App()
    unfit.handler("send", process=True)(decorated)
    await queue(store)
    with pytest.raises(InvalidInput, match=r"of 'send' is not what tests\..*\.process_handlers\.plain is"):
        await Worker(unfit, store, settings()).run()


async def test_a_worker_that_is_stopped_while_it_starts_a_process_ends(store: MemoryStore) -> None:
    await queue(store)
    running = Running(app, store)
    await asyncio.sleep(0)
    assert (await running.stop()).clean
    assert not running.worker.started.is_set()


def test_what_another_process_cannot_find_is_refused_at_registration() -> None:
    refused = App()

    def local(ctx: Context, payload: Any) -> None: ...

    class Callable:
        def __call__(self, ctx: Context, payload: Any) -> None: ...

    with pytest.raises(InvalidInput, match=r"of 'send' is .*<locals>\.local, which another process cannot find"):
        refused.handler("send", process=True)(local)
    with pytest.raises(InvalidInput, match="of 'send' is not a plain function"):
        refused.handler("send", process=True)(Callable())

    @refused.dependency
    def n() -> int:
        return 1

    with pytest.raises(InvalidInput, match="n: of 'send' is a dependency, which lives in the worker"):
        refused.handler("send", process=True)(takes_a_dependency)
    assert refused.handlers == {}


def takes_a_dependency(ctx: Context, payload: Any, n: int) -> None: ...
