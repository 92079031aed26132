"""Every program of examples/ runs."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from headrace.lifecycle import promote
from headrace.stores import open_store
from tests.docs.blocks import ROOT
from tests.services.redis import RedisServer

RAN = {"handlers", "enqueue", "embedded_worker", "topology_migration"}


@pytest.fixture
def redis_url() -> Iterator[str]:
    """A server of its own: examples use the default prefix."""
    with RedisServer("valkey") as server:
        yield server.url


def run(*command: str) -> str:
    environment = dict(os.environ) | {"PYTHONWARNINGS": "error"}
    result = subprocess.run(
        [sys.executable, "-m", *command], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_all_are_known() -> None:
    assert {path.stem for path in (ROOT / "examples").glob("*.py")} == RAN


def test_producer_and_handler(redis_url: str) -> None:
    async def create() -> None:
        store = open_store(redis_url)
        await promote(store, "greetings", 1, 2)
        await store.close()

    asyncio.run(create())
    run("examples.enqueue", redis_url)
    worker = subprocess.Popen(
        [sys.executable, "-m", "headrace.cli.main", "worker", "run", "examples.handlers:app", "--queue", "greetings"],
        cwd=ROOT,
        env=dict(os.environ) | {"HEADRACE_REDIS_URL": redis_url},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert worker.stdout is not None
        greeted = [worker.stdout.readline(), worker.stdout.readline()]
        worker.terminate()
        assert worker.wait(30) == 0
    finally:
        worker.kill()
        worker.communicate()
    assert [line.partition("!")[0] for line in greeted] == ["Hello Ada", "Hello Grace"]


def test_embedded_worker_in_memory() -> None:
    assert run("examples.embedded_worker") == "[0, 1, 4, 9, 16]\n"


def test_embedded_worker_on_redis(redis_url: str) -> None:
    assert run("examples.embedded_worker", redis_url) == "[0, 1, 4, 9, 16]\n"


def test_topology_migration(redis_url: str) -> None:
    printed = run("examples.topology_migration", redis_url)
    assert "version 1 is not drained (JobsRemain)" in printed
    assert printed.splitlines()[-1].startswith("version 1 is gone: epoch 4: v2 active x8")
