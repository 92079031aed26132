"""Fixtures of all tests: real Redis servers, started once, and a prefix per test that keeps tests apart on them."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import pytest
from hypothesis import settings

from tests.cluster.guard import Guard
from tests.cluster.ports import free_ports
from tests.services.redis import RedisServer, RedisServers, flavours
from tests.services.redis_setups import PREFIXES, RedisSetups

# The same examples on every run, however slow the machine: a failure is a failure of the code.
settings.register_profile("headrace", derandomize=True, deadline=None, database=None)
settings.load_profile("headrace")


@pytest.fixture(scope="session")
def process_guard() -> Iterator[Guard]:
    """Ends what the tests started, even if they are killed."""
    guard = Guard()
    yield guard
    guard.close()


@pytest.fixture(scope="session")
def redis_servers(process_guard: Guard) -> Iterator[RedisServers]:
    """The shared servers by flavour. Tests that stop or pause a server start one of their own instead."""
    servers = RedisServers(process_guard)
    yield servers
    servers.close()


@pytest.fixture(scope="session")
def redis_setups(redis_servers: RedisServers, process_guard: Guard) -> Iterator[RedisSetups]:
    """The shared servers, a shared Cluster and a shared primary under Sentinels."""
    setups = RedisSetups(redis_servers, process_guard)
    yield setups
    setups.close()


@pytest.fixture(scope="session", params=flavours())
def redis_server(request: pytest.FixtureRequest, redis_servers: RedisServers) -> RedisServer:
    """A shared server; a test that asks for it runs once per flavour."""
    return redis_servers.get(request.param)


@pytest.fixture
def unused_tcp_port() -> int:
    """A port that no other process of tests is given; pytest-asyncio's may be that of an outgoing connection soon."""
    return free_ports(1)[0]


@pytest.fixture
def prefix() -> str:
    """A key prefix that no other test uses."""
    return f"{PREFIXES}{uuid4().hex[:16]}"
