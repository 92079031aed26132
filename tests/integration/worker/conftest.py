"""Every test here that asks for ``store`` runs in memory, on Valkey, and on Redis where it is installed."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from headrace.stores.base import Store
from headrace.stores.memory import MemoryStore
from headrace.stores.redis import RedisStore
from tests.cluster.guard import Guard
from tests.cluster.processes import Component
from tests.integration.worker.processes import ROOT, WRONG_CLOCK, Start
from tests.integration.worker.support import QUEUE
from tests.services.redis import RedisServer, RedisServers, flavours


@pytest.fixture(params=("memory", *flavours()))
def backend(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
async def store(backend: str, prefix: str, redis_servers: RedisServers) -> AsyncIterator[Store]:
    opened: Store
    if backend == "memory":
        opened = MemoryStore()
    else:
        opened = RedisStore(redis_servers.get("redis" if backend == "redis" else "valkey").url, prefix=prefix)
    yield opened
    await opened.close()


@pytest.fixture
def server(redis_servers: RedisServers) -> RedisServer:
    """The server that worker processes use; shared, so it is neither stopped nor changed."""
    return redis_servers.get(flavours()[0])


@pytest.fixture
def start(server: RedisServer, prefix: str, tmp_path: Path, process_guard: Guard) -> Iterator[Start]:
    """Start a worker process by name; options are environment variables without HEADRACE_.

    ``clock_ahead``: its clock is so many seconds ahead of everybody else's. ``place``: what a Pod says of itself.
    """
    started: list[Component] = []

    def start_worker(
        name: str,
        *arguments: str,
        url: str = server.url,
        application: str = "tests.integration.worker.process_app:app",
        clock_ahead: int = 0,
        place: Mapping[str, str] = MappingProxyType({}),
        **options: Any,
    ) -> Component:
        variables = {"REDIS_URL": url, "PREFIX": prefix, "QUEUES": QUEUE, "WORKER_ID": name, "LEASE_MS": 500, **options}
        process = Component(
            name,
            [sys.executable, "-m", "headrace", "worker", "run", application, *arguments],
            log=tmp_path / f"{name}.log",
            guard=process_guard,
            env={
                "PATH": os.environ["PATH"],
                "PYTHONPATH": os.pathsep.join(map(str, (WRONG_CLOCK, ROOT, tmp_path))),
                "TEST_CLOCK_AHEAD": str(clock_ahead),
                "TEST_FOLDER": str(tmp_path),
                "TEST_WORKER": name,
                **place,
                **{f"HEADRACE_{key}": str(value) for key, value in variables.items()},
            },
        )
        started.append(process)
        process.start()
        return process

    yield start_worker
    for process in started:
        process.stop(grace=0)
