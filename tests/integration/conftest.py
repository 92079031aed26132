"""The command line, called in this process against a real server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import pytest

from headrace.cli.main import app
from headrace.stores import open_store
from headrace.stores.base import Store
from tests.services.redis import RedisServers, flavours

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def server_url(redis_servers: RedisServers) -> str:
    """The server that the command line is pointed at."""
    return redis_servers.get(flavours()[0]).url


@pytest.fixture
def run(server_url: str, prefix: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Call ``headrace`` with arguments; exit code, output and errors."""
    monkeypatch.setenv("HEADRACE_REDIS_URL", server_url)
    monkeypatch.setenv("HEADRACE_PREFIX", prefix)

    def call(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            app(arguments)
        captured = capsys.readouterr()
        return int(ended.value.code or 0), captured.out, captured.err

    return call


@pytest.fixture
async def store(server_url: str, prefix: str) -> AsyncIterator[Store]:
    """The store that the command line works on."""
    opened = open_store(server_url, prefix)
    yield opened
    await opened.close()
