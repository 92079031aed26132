"""Every program of examples/ runs."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from examples import fastapi_app, flask_view, handlers
from headrace import SyncProducer, open_store
from headrace.lifecycle import promote
from headrace.stores.base import Counts
from headrace.testing import BlockingTestQueue
from headrace.topology import PartitionRef
from tests.docs.blocks import ROOT
from tests.services.redis import RedisServer

RAN = {"handlers", "enqueue", "embedded_worker", "topology_migration", "fastapi_app", "flask_view", "django_view"}


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
        assert worker.wait(60) == 0
    finally:
        worker.kill()
        worker.communicate()
    assert [line.partition("!")[0] for line in greeted] == ["Hello Ada", "Hello Grace"]


def test_the_producer_says_what_it_needs(redis_url: str) -> None:
    for arguments, told in (
        ((), "usage: python -m examples.enqueue URL, for example redis://127.0.0.1:6379/0\n"),
        (
            (redis_url,),
            "Error: queue 'greetings' does not exist in this store; create it by applying a Queue object or "
            "with `headrace topology promote greetings --version 1 --partitions N`\n",
        ),
    ):
        command = [sys.executable, "-m", "examples.enqueue", *arguments]
        ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
        assert (ran.returncode, ran.stdout, ran.stderr) == (1, "", told)


def test_embedded_worker_in_memory() -> None:
    assert run("examples.embedded_worker") == "[0, 1, 4, 9, 16]\n"


def test_embedded_worker_on_redis(redis_url: str) -> None:
    assert run("examples.embedded_worker", redis_url) == "[0, 1, 4, 9, 16]\n"


def test_worker_in_a_fastapi_application(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def visit() -> list[str]:
        fastapi_app.greeted.clear()
        async with (
            fastapi_app.web.router.lifespan_context(fastapi_app.web),
            httpx.AsyncClient(transport=httpx.ASGITransport(fastapi_app.web), base_url="http://example.com") as client,
        ):
            assert (await client.post("/greetings/Grace", params={"delay": 3600})).status_code == 202
            assert (await client.post("/greetings/Grace")).status_code == 409
            assert (await client.post("/greetings/Ada")).json() == {"id": "greet:Ada"}
            async with asyncio.timeout(60):
                while not (found := (await client.get("/greetings")).json()):
                    await asyncio.sleep(0.005)
        greeted: list[str] = found
        return greeted

    assert asyncio.run(visit()) == ["Ada"]  # in memory
    monkeypatch.setenv("HEADRACE_REDIS_URL", redis_url)
    assert asyncio.run(visit()) == ["Ada"]


def test_producer_in_a_flask_view(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def create() -> None:
        store = open_store(redis_url)
        await promote(store, "greetings", 1, 1)
        await store.close()

    async def stored() -> Counts:
        store = open_store(redis_url)
        (counts,) = await store.counts([PartitionRef("greetings", 1, 0)])
        await store.close()
        return counts

    asyncio.run(create())
    monkeypatch.setenv("HEADRACE_REDIS_URL", redis_url)
    client = flask_view.web.test_client()
    try:
        answers = [client.post("/greetings", data={"name": "Ada", "delay": delay}) for delay in (0, 60)]
        assert [answer.status_code for answer in answers] == [202, 202]
        assert asyncio.run(stored()).nonempty() == {"ready": 1, "scheduled": 1}
    finally:
        flask_view.producer().close()
        flask_view.producer.cache_clear()


def test_producer_in_a_django_view(redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def create() -> None:
        store = open_store(redis_url)
        await promote(store, "greetings", 1, 1)
        await store.close()

    async def stored() -> Counts:
        store = open_store(redis_url)
        (counts,) = await store.counts([PartitionRef("greetings", 1, 0)])
        await store.close()
        return counts

    asyncio.run(create())
    monkeypatch.setenv("HEADRACE_REDIS_URL", redis_url)
    client = django_client(monkeypatch)
    view = sys.modules["examples.django_view"]
    try:
        answers = [client.post("/greetings", {"name": name, "delay": 60}) for name in ("Ada", "Ada", "Grace", "nobody")]
        assert [answer.status_code for answer in answers] == [202, 202, 202, 404]
        assert answers[0].json() == {"id": "greet:Ada"}
        assert asyncio.run(stored()).nonempty() == {"scheduled": 2}
    finally:
        view.producer().close()
        view.producer.cache_clear()


def test_a_django_view_and_its_handler_are_tested_together(monkeypatch: pytest.MonkeyPatch) -> None:
    client = django_client(monkeypatch)
    with (
        BlockingTestQueue(handlers.app, queues=("greetings",)) as queue,
        SyncProducer(queue.store) as producer,
    ):
        monkeypatch.setattr(sys.modules["examples.django_view"], "producer", lambda: producer)
        asked = client.post("/greetings", {"name": "Ada", "delay": 60})
        (run,) = queue.advance(minutes=1)
    assert (run.job.id, run.outcome) == (asked.json()["id"], "succeeded")


def django_client(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A client of the example, whose module is also its settings."""
    monkeypatch.setenv("DJANGO_SETTINGS_MODULE", "examples.django_view")
    import django
    from django.test import Client

    django.setup()
    return Client()


def test_a_view_and_its_handler_are_tested_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """What docs/worker.md tells of the testing kit, on the examples themselves."""
    with (
        BlockingTestQueue(handlers.app, queues=("greetings",)) as queue,
        SyncProducer(queue.store) as producer,
    ):
        monkeypatch.setattr(flask_view, "producer", lambda: producer)
        asked = flask_view.web.test_client().post("/greetings", data={"name": "Ada", "delay": 60})
        (run,) = queue.advance(minutes=1)
    assert (run.job.id, run.outcome) == (asked.get_json()["id"], "succeeded")


def test_topology_migration(redis_url: str) -> None:
    printed = run("examples.topology_migration", redis_url)
    assert "version 1 is not drained (JobsRemain)" in printed
    assert printed.splitlines()[-1].startswith("version 1 is gone: epoch 4: v2 active x8")
