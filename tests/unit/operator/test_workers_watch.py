"""The watch of worker Deployments goes on whatever ends it."""

from __future__ import annotations

import asyncio

import kubernetes.client
import pytest

from headrace_operator.kubernetes import workers_watch
from headrace_operator.kubernetes.workers_watch import WorkersWatch


async def test_an_error_that_nobody_foresaw_does_not_end_the_watch(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(workers_watch, "RETRY_SECONDS", 0.01)
    tries = 0

    def configure() -> kubernetes.client.Configuration:
        nonlocal tries
        tries += 1
        raise AttributeError("not what the library promises")

    running = asyncio.create_task(WorkersWatch(configure, lambda key, version, there: None).run())
    async with asyncio.timeout(10):
        while tries < 3:
            await asyncio.sleep(0.005)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert "the watch of worker Deployments ended: AttributeError" in caplog.text
