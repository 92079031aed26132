"""Worker processes with handler processes, and what kills them: the kernel for memory, SIGKILL, SIGTERM."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from headrace import Store
from headrace.dead_letters import dead_jobs
from headrace.stores import open_store
from tests.integration.worker.processes import ROOT, Start, ended, noted, notes, runs
from tests.integration.worker.support import QUEUE, empty, eventually, only_job, put, queue, sizes, sizes_are
from tests.services.memory_group import MemoryGroup
from tests.services.redis import RedisServer

HANDLERS = "tests.integration.worker.process_handlers:app"


@pytest.fixture
async def store(server: RedisServer, prefix: str) -> Any:
    opened = open_store(server.url, prefix)
    yield opened
    await opened.close()


async def test_QH4_QA12_a_process_that_the_kernel_kills_for_memory_fails_its_run_and_says_so(
    store: Store, start: Start, tmp_path: Path, prefix: str
) -> None:
    producer = await queue(store)
    path = tmp_path / "notes"
    with MemoryGroup(f"headrace-{prefix}", 300 << 20) as group:
        worker = start("only", application=HANDLERS, LEASE_MS=30_000)
        assert worker.pid is not None
        await eventually(lambda: "worker only-" in worker.log.read_text())
        group.add(worker.pid)
        # The process that stands by since the start is outside of the group; the second one is not.
        await put(producer, "wait", [{"path": str(path)}])
        await eventually(lambda: noted(path))
        await put(producer, "devour", [{"path": str(tmp_path / "devoured")}])
        await eventually(lambda: sizes_are(store, {"dead": 1, "leased": 1}))
        (tmp_path / "notes.go").touch()
        await eventually(lambda: sizes_are(store, {"dead": 1}))
        worker.signal(signal.SIGTERM)
        assert await ended(worker) == 0
    (letter,) = [each async for each in dead_jobs(store, QUEUE)]
    assert letter.job is not None
    assert letter.job.last_error.startswith(
        "the process of its handler was killed by SIGKILL (exit code 137): out of memory on "
    )
    assert len(noted(tmp_path / "devoured")) == 1


async def test_QA10_a_worker_that_is_killed_for_memory_loses_no_job(
    store: Store, start: Start, tmp_path: Path, prefix: str
) -> None:
    producer = await queue(store)
    with MemoryGroup(f"headrace-{prefix}", 200 << 20) as group:
        first = start("first", LEASE_MS=1000)
        await eventually(lambda: "worker first-" in first.log.read_text())
        assert first.pid is not None
        group.add(first.pid)
        (job,) = await put(producer, "devour", [None])
        assert await ended(first) == -signal.SIGKILL
    (tmp_path / "go-second").touch()
    start("second")
    await eventually(lambda: empty(store))
    assert [entry[:3] for entry in notes(tmp_path)] == [
        ["first", "began", job],
        ["second", "began", job],
        ["second", "ended", job],
    ]


async def test_a_handler_process_ends_with_its_worker_and_the_job_runs_again(
    store: Store, start: Start, tmp_path: Path
) -> None:
    producer = await queue(store)
    path = tmp_path / "notes"
    first = start("first", application=HANDLERS)
    await put(producer, "wait", [{"path": str(path)}], timeout=3600)
    await eventually(lambda: noted(path))
    first.signal(signal.SIGKILL)
    await ended(first)
    await eventually(lambda: not runs(noted(path)[0]["pid"]))
    (tmp_path / "notes.go").touch()
    start("second", application=HANDLERS)
    await eventually(lambda: empty(store))
    assert [note["what"] for note in noted(path)] == ["began", "began", "ended"]


async def test_J17_QG1_SIGTERM_gives_processes_the_grace_time_and_then_kills_them(
    store: Store, start: Start, tmp_path: Path
) -> None:
    producer = await queue(store)
    paths = [tmp_path / "a", tmp_path / "b"]
    worker = start("only", "--grace-seconds", "3600", application=HANDLERS, LEASE_MS=30_000)
    await put(producer, "wait", [{"path": str(path)} for path in paths], timeout=7200)
    await eventually(lambda: all(noted(path) for path in paths))
    worker.signal(signal.SIGTERM)
    await eventually(lambda: "stopping: 2 handler(s) still run" in worker.log.read_text())
    (tmp_path / "a.go").touch()
    await eventually(lambda: sizes_are(store, {"leased": 1}))
    assert runs(noted(paths[1])[0]["pid"])
    worker.signal(signal.SIGTERM)
    assert await ended(worker) == 0
    assert not runs(noted(paths[1])[0]["pid"])
    assert await sizes(store) == {"ready": 1}
    back = await only_job(store)
    assert (back.attempt, [entry.status for entry in back.history]) == (0, ["interrupted"])


PROGRAM = """
import asyncio, sys
from headrace import App, Producer, Worker, WorkerSettings, open_store
from headrace.lifecycle import promote

app = App()

@app.handler("tell", process=True)
def tell(ctx, payload):
    print("told", payload, __name__)

async def main():
    store = open_store("memory://")
    await promote(store, "q", 1, 1)
    worker = Worker(app, store, WorkerSettings(queues=("q",)))
    running = asyncio.create_task(worker.run())
    await Producer(store).enqueue("q", "tell", 7)
    while (await store.counts([r for r in (await store.read_topology("q")).refs(1)]))[0].live:
        await asyncio.sleep(0.01)
    await worker.stop()
    assert (await running).clean
    await store.close()

if __name__ == "__main__":
    asyncio.run(main())
"""


@pytest.mark.parametrize(("how", "name"), [("file", "__headrace_main__"), ("module", "program_for_test")])
async def test_handlers_may_stand_in_the_program_itself(tmp_path: Path, how: str, name: str) -> None:
    (tmp_path / "program_for_test.py").write_text(PROGRAM)
    arguments = ["program_for_test.py"] if how == "file" else ["-m", "program_for_test"]
    ran = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, *arguments],
        cwd=tmp_path,
        env=dict(os.environ) | {"PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "error"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, f"told 7 {name}\n", "")
    refused = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", PROGRAM],
        cwd=tmp_path,
        env=dict(os.environ) | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "handler: of 'tell' is defined in a program without a file" in refused.stderr
