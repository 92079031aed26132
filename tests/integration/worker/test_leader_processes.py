"""Leading workers as processes: killed, frozen, asked to end."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from headrace import Store
from headrace.election.fence import FenceView
from headrace.leadership.locks import beside, open_fence
from headrace.stores import open_store
from tests.cluster.processes import Component
from tests.integration.worker.processes import Start, ended, notes
from tests.integration.worker.support import QUEUE, empty, eventually, put, queue
from tests.services.redis import RedisServer

RELAXED = {"LEADER_PROFILE": "relaxed"}
FAST = {"LEADER_PROFILE": "fast"}
DEAF = "tests.integration.worker.deaf_leader_app:app"


@pytest.fixture
async def store(server: RedisServer, prefix: str) -> AsyncIterator[Store]:
    opened = open_store(server.url, prefix)
    yield opened
    await opened.close()


async def fence(store: Store) -> FenceView:
    """Who leads, as anybody can read it."""
    place = beside(store, QUEUE)
    assert place is not None
    opened = open_fence(place, 5)
    try:
        return await opened.read(5)
    finally:
        await opened.close()


async def leads(store: Store, name: str) -> bool:
    view = await fence(store)
    return view.seconds > 0 and view.holder.startswith(f"{name}-")


def told(process: Component, what: str) -> int:
    return process.log.read_text().count(what)


async def test_QA14_V11_jobs_of_a_leader_that_was_killed_are_recovered_while_its_locks_still_stand(
    store: Store, start: Start, tmp_path: Path
) -> None:
    producer = await queue(store)
    first = start("first", LEASE_MS=1000, **RELAXED)
    await eventually(lambda: leads(store, "first"))
    (job,) = await put(producer, "wait", [None])
    await eventually(lambda: notes(tmp_path))
    first.signal(signal.SIGKILL)
    assert await ended(first) == -signal.SIGKILL
    (tmp_path / "go-second").touch()
    start("second", **RELAXED)
    await eventually(lambda: empty(store))
    assert await leads(store, "first")  # nobody else leads yet: no recovery has asked
    assert [entry[:3] for entry in notes(tmp_path)] == [
        ["first", "began", job],
        ["second", "began", job],
        ["second", "ended", job],
    ]


async def test_L6_a_killed_leader_is_followed_and_the_next_one_keeps_house(store: Store, start: Start) -> None:
    await queue(store, partitions=2)
    first = start("first", **FAST)
    await eventually(lambda: leads(store, "first"))
    second = start("second", **FAST)
    await eventually(lambda: told(second, "runs"))
    before = (await fence(store)).epoch
    first.signal(signal.SIGKILL)
    topology = await store.read_topology(QUEUE)
    assert topology is not None
    target = topology.promoted(2, 4)
    assert await store.write_topology(topology, target)
    await eventually(lambda: leads(store, "second"))
    assert (await fence(store)).epoch == before + 1

    async def finished() -> bool:
        return all(each.state == "active" for each in await store.counts(target.refs(2)))

    await eventually(finished)


async def test_L9_a_frozen_leader_is_replaced_and_knows_it_when_it_goes_on(store: Store, start: Start) -> None:
    await queue(store)
    first = start("first", **FAST)
    await eventually(lambda: leads(store, "first"))
    second = start("second", **FAST)
    await eventually(lambda: told(second, "runs"))
    first.signal(signal.SIGSTOP)
    await eventually(lambda: leads(store, "second"))
    first.signal(signal.SIGCONT)
    await eventually(lambda: told(first, "leads no more"))
    assert await leads(store, "second")
    for process in (second, first):
        process.signal(signal.SIGTERM)
        assert await ended(process) == 0


async def test_LE16_a_leader_that_is_asked_to_end_hands_over_while_its_handlers_go_on(
    store: Store, start: Start, tmp_path: Path
) -> None:
    producer = await queue(store)
    first = start("first", GRACE_SECONDS=60, **RELAXED)
    await eventually(lambda: leads(store, "first"))
    await put(producer, "wait", [None])
    await eventually(lambda: notes(tmp_path))
    second = start("second", **RELAXED)
    await eventually(lambda: told(second, "runs"))
    first.signal(signal.SIGTERM)
    # Far earlier than the 30 s of its lock, and while its handler runs.
    await eventually(lambda: leads(store, "second"))
    assert first.running
    (tmp_path / "go-first").touch()
    assert await ended(first) == 0
    assert await empty(store)


@pytest.mark.parametrize(("policy", "code"), [("unhealthy", None), ("exit", 1)])
async def test_LE7_a_process_whose_leader_work_ignores_its_end_may_end_by_itself(
    store: Store, start: Start, tmp_path: Path, policy: str, code: int | None
) -> None:
    await queue(store)
    first = start("first", application=DEAF, LEADER_ON_WEDGED=policy, **FAST)
    await eventually(lambda: leads(store, "first"))
    start("second", **FAST)
    (tmp_path / "resign").touch()
    await eventually(lambda: leads(store, "second"))
    await eventually(lambda: told(first, "ignores its cancellation"))
    if code is None:
        assert first.running
    else:
        assert await ended(first) == code
