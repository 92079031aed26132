"""Real workers while versions come and go: what is stored counts, whatever a process was told or still remembers."""

from __future__ import annotations

from typing import Any, cast

import pytest

from headrace import App, Context, JobSpec, Producer
from headrace.errors import StoreUnavailable, TopologyConflict, VersionNotHigher
from headrace.lifecycle import configure, promote
from headrace.queue_apply import apply_queue
from headrace.queue_file import QueueFile
from headrace.settings import QueueSettings
from headrace.stores.base import Moved, Store
from headrace.worker import wakeups
from tests.conformance.conftest import Complete
from tests.conformance.steps import QUEUE, created, enqueue, id_of, ref, states, stored_topology
from tests.integration.worker.support import Faulty, eventually, put, working


def noting() -> tuple[App, list[tuple[int, int, str]]]:
    """An app whose handler notes version, partition and id of each run."""
    app, runs = App(), list[tuple[int, int, str]]()

    @app.handler("job")
    async def job(ctx: Context, payload: Any) -> None:
        runs.append((ctx.job.version, ctx.job.partition, ctx.job.id))

    return app, runs


@pytest.mark.parametrize(("stored", "configured"), [(4, 8), (8, 4)])
async def test_T6_a_process_that_was_told_other_partitions_strands_no_job(
    store: Store, stored: int, configured: int
) -> None:
    first = await created(store, stored)
    names = [id_of(partition, stored) for partition in range(stored)]
    await Producer(store).enqueue_many(QUEUE, [JobSpec("job", id=name) for name in names])
    # It starts, and asks for what it was told, in every way there is.
    for asking in (
        promote(store, QUEUE, 1, configured),
        apply_queue(store, QueueFile(QUEUE, 1, configured, QueueSettings(), False)),
    ):
        with pytest.raises(TopologyConflict, match=f"already active with {stored} partitions") as caught:
            await asking
        assert caught.value.current == first
    assert await stored_topology(store) == first
    assert await states(store, 1, 9) == ["active"] * stored + ["absent"] * (9 - stored)
    for partition in range(configured):
        refused = await enqueue(store, "never", at=ref(partition), partitions=configured)
        assert isinstance(refused, Moved)
    later = [await Producer(store).enqueue(QUEUE, "job") for _ in range(20)]
    app, runs = noting()
    async with working(app, store):
        await eventually(lambda: len(runs) == stored + 20)
    assert sorted(runs) == sorted(
        [(1, n, name) for n, name in enumerate(names)] + [(1, job.partition, job.id) for job in later]
    )


@pytest.mark.parametrize("after", ["promoted", "completed"])
async def test_T7_a_process_that_was_told_an_old_version_never_brings_it_back(
    store: Store, completed: Complete, after: str
) -> None:
    await created(store, 4)
    app, runs = noting()
    old = await put(Producer(store), "job", range(8)) if after == "promoted" else []
    second = await promote(store, QUEUE, 2, 2)
    if after == "completed":
        second = await completed(1)
    for asking in (
        promote(store, QUEUE, 1, 4),
        apply_queue(store, QueueFile(QUEUE, 1, 4, QueueSettings(), False)),
    ):
        with pytest.raises(VersionNotHigher, match="not above 2"):
            await asking
    assert await stored_topology(store) == second
    new = await put(Producer(store), "job", range(8))
    async with working(app, store):
        await eventually(lambda: len(runs) == len(old) + 8)
    assert {job for version, _, job in runs if version == 1} == set(old)
    assert {job for version, _, job in runs if version == 2} == set(new)
    assert (await stored_topology(store)).active == 2


async def test_T7_versions_come_from_the_store_whatever_the_worker_was_told(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    app, runs = noting()
    await created(store, 4)
    producer = Producer(store)
    await put(producer, "job", range(40))
    await promote(store, QUEUE, 2, 8)
    await put(producer, "job", range(40))
    # An old configuration of the pod; there is no such setting.
    monkeypatch.setenv("HEADRACE_VERSION", "1")
    monkeypatch.setenv("HEADRACE_ACTIVE_VERSION", "1")
    monkeypatch.setenv("HEADRACE_PARTITIONS", "2")
    async with working(app, store):
        await eventually(lambda: len(runs) == 80)
    assert {version for version, _, _ in runs} == {1, 2}
    topology = await stored_topology(store)
    assert (topology.active, topology.partitions) == (2, 8)


async def test_T9_jobs_of_every_draining_version_run(store: Store, completed: Complete) -> None:
    app, runs = noting()
    await created(store, 3)
    producer = Producer(store)
    for version, partitions in ((2, 5), (3, 1)):
        await put(producer, "job", range(20))
        await promote(store, QUEUE, version, partitions)
    await put(producer, "job", range(20))
    async with working(app, store):
        await eventually(lambda: len(runs) == 60)
    assert {version for version, _, _ in runs} == {1, 2, 3}
    assert len({job for _, _, job in runs}) == 60
    for version in (2, 1):  # each ends by itself, in whatever order
        await completed(version)
    assert set((await stored_topology(store)).versions) == {3}


@pytest.mark.parametrize("idle_before", [False, True])
async def test_T10_an_idle_worker_picks_up_the_first_job_of_a_new_version(
    store: Store, monkeypatch: pytest.MonkeyPatch, idle_before: bool
) -> None:
    # Woken by the job itself: neither the poll interval nor the refresh of the topology comes within the test.
    monkeypatch.setattr(wakeups, "TICK_SECONDS", 3600.0)
    app, runs = noting()
    await created(store, 2)
    producer = Producer(store)
    async with working(app, store, poll_ms=300_000):
        if idle_before:
            await put(producer, "job", [None])
            await eventually(lambda: len(runs) == 1)
        runs.clear()
        await promote(store, QUEUE, 2, 5)
        await put(producer, "job", [None])
        await eventually(lambda: len(runs) == 1)
        # Nor is anybody else needed who knows both: the producer is new, too.
        await promote(store, QUEUE, 3, 1)
        await put(Producer(store), "job", [None])
        await eventually(lambda: len(runs) == 2)
    assert [version for version, _, _ in runs] == [2, 3]


async def test_M4_jobs_of_a_claim_that_took_too_long_run_at_once_and_once(store: Store) -> None:
    """The claim was applied and nobody waited for its reply any more. Its leases last longer than the test."""
    app, runs = noting()
    await created(store)
    names = await put(Producer(store), "job", range(20))
    faulty = Faulty(store)
    faulty.after["claim"] = [StoreUnavailable("no reply in time"), None, StoreUnavailable("no reply in time")]
    async with working(app, cast(Store, faulty), lease_ms=600_000, batch_size=4) as running:
        await eventually(lambda: len(runs) == 20)

        async def acknowledged() -> bool:
            (found,) = await store.counts([ref()])
            return found.live == 0

        await eventually(acknowledged)
    assert sorted(job for _, _, job in runs) == sorted(names)
    assert faulty.calls["resume"] >= 2
    assert running.told.lost == 0


async def test_V13_workers_run_jobs_of_partitions_that_go_by_a_forgotten_pause(store: Store) -> None:
    """The store has forgotten that the queue was paused, its partitions have not: whoever leads sees to it."""
    app, runs = noting()
    await created(store, 2)
    jobs = await put(Producer(store), "job", range(4))
    second = await promote(store, QUEUE, 2, 2)
    jobs += await put(Producer(store), "job", range(4))
    held = await configure(store, QUEUE, QueueSettings(stop="hold"))
    assert await store.write_topology(held, second)
    async with working(app, store, leader_profile="fast"):
        await eventually(lambda: len(runs) == 8)
    assert sorted(job for _, _, job in runs) == sorted(jobs)
    topology = await stored_topology(store)
    assert topology.epoch > held.epoch
    assert (topology.settings, topology.versions) == (second.settings, second.versions)
