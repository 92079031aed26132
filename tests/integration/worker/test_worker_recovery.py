"""A worker process dies, and another one takes over what it ran: the same on every set-up of Redis."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from headrace import Store
from headrace.stores import open_store
from tests.integration.worker.processes import Start, ended, notes
from tests.integration.worker.support import empty, eventually, put, queue, sizes_are
from tests.services.redis_setups import SETUPS, RedisSetups

PARTITIONS = 64
"""So many that the sweep for lost hints, which looks at one partition every 5 s, is no way to find them in a test."""
JOBS = 96


@pytest.fixture(params=SETUPS)
def url(request: pytest.FixtureRequest, redis_setups: RedisSetups) -> str:
    return redis_setups.url(request.param)


@pytest.fixture
async def store(url: str, prefix: str) -> AsyncIterator[Store]:
    opened = open_store(url, prefix)
    yield opened
    await opened.close()


@pytest.mark.parametrize("waits", [True, False], ids=["another one waits", "another one comes later"])
async def test_QA13_what_a_killed_worker_ran_runs_once_more_uncharged(
    store: Store, url: str, start: Start, tmp_path: Path, waits: bool
) -> None:
    producer = await queue(store, PARTITIONS)
    jobs = await put(producer, "wait", [None] * JOBS)
    first = start("first", "-c", str(JOBS), url=url, LEASE_MS=4000)
    await eventually(lambda: Counter(line[1] for line in notes(tmp_path))["began"] == JOBS)
    (tmp_path / "go-second").touch()
    if waits:
        second = start("second", "-c", str(JOBS), url=url)
        await eventually(lambda: "worker second-" in second.log.read_text())
    first.signal(signal.SIGKILL)
    assert await ended(first) == -signal.SIGKILL
    if not waits:
        assert await sizes_are(store, {"leased": JOBS})
        second = start("second", "-c", str(JOBS), url=url)
    await eventually(lambda: empty(store))
    second.signal(signal.SIGTERM)
    assert await ended(second) == 0
    told = Counter((worker, what) for worker, what, *_ in notes(tmp_path))
    assert told == {("first", "began"): JOBS, ("second", "began"): JOBS, ("second", "ended"): JOBS}
    again = [line for line in notes(tmp_path) if line[:2] == ["second", "began"]]
    assert sorted(line[2] for line in again) == sorted(jobs)
    assert {line[4] for line in again} == {"0"}
