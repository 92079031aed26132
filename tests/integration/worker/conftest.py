"""Every test here that asks for ``store`` runs in memory, on Valkey, and on Redis where it is installed."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from headrace.stores.base import Store
from headrace.stores.memory import MemoryStore
from headrace.stores.redis import RedisStore
from tests.services.redis import RedisServers, flavours


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
