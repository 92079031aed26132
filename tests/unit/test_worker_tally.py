"""What a worker counts for the statistics, and how often it sends it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import cast

import pytest

from headrace.errors import AccessDenied, StoreFull, StoreRefused, StoreUnavailable
from headrace.stores.base import Store
from headrace.worker.outage import Reachability
from headrace.worker.tally import FLUSH_SECONDS, Reporter, Tally


class Counting:
    """Stands for a store: takes counts, or answers with an error."""

    def __init__(self) -> None:
        self.taken: list[tuple[str, dict[str, int]]] = []
        self.error: Exception | None = None

    async def count_work(self, queue: str, counts: Mapping[str, int]) -> bool:
        if self.error is not None:
            raise self.error
        self.taken.append((queue, dict(counts)))
        return True


class Scene:
    """A reporter whose pauses end when told."""

    def __init__(self) -> None:
        self.tally, self.store, self.reachability = Tally(), Counting(), Reachability()
        self.pauses: list[float] = []
        self._ends = asyncio.Semaphore(0)
        self._begun = asyncio.Semaphore(0)
        self.reporter = Reporter(self.tally, cast(Store, self.store), self.reachability, self._pause)
        self.task = asyncio.create_task(self.reporter.run())

    async def _pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self._begun.release()
        await self._ends.acquire()

    async def pausing(self) -> None:
        async with asyncio.timeout(20):
            await self._begun.acquire()

    async def second_passes(self) -> None:
        self._ends.release()
        for _ in range(10):
            await asyncio.sleep(0)

    async def stop(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


async def test_a_busy_second_is_one_call_and_an_idle_one_none() -> None:
    scene = Scene()
    for _ in range(100):
        scene.tally.add("emails", "claimed", 5)
        scene.tally.add("emails", "succeeded", 4)
    await scene.pausing()
    assert scene.store.taken == []
    await scene.second_passes()
    assert scene.store.taken == [("emails", {"claimed": 500, "succeeded": 400})]
    assert scene.pauses == [FLUSH_SECONDS]  # it waits for something to count before it waits again
    scene.tally.add("emails", "claimed", 1)
    await scene.pausing()
    await scene.second_passes()
    assert scene.store.taken[1:] == [("emails", {"claimed": 1})]
    await scene.stop()


async def test_each_queue_is_counted_by_itself() -> None:
    scene = Scene()
    scene.tally.add("emails", "dead", 1)
    scene.tally.add("reports", "retried", 2)
    await scene.reporter.send()
    assert sorted(scene.store.taken) == [("emails", {"dead": 1}), ("reports", {"retried": 2})]
    await scene.stop()


async def test_parts_of_milliseconds_add_up() -> None:
    tally = Tally()
    for _ in range(1000):
        tally.timed("emails", 0.0004)
    counted = tally.take()["emails"]
    assert counted["service_jobs"] == 1000
    assert 399 <= counted["service_ms"] <= 400


@pytest.mark.parametrize("refusal", [StoreFull, StoreRefused, AccessDenied])
async def test_what_was_refused_is_sent_later(refusal: type[StoreRefused]) -> None:
    scene = Scene()
    scene.store.error = refusal("not now")
    scene.tally.add("emails", "claimed", 3)
    await scene.reporter.send()
    scene.store.error = None
    scene.tally.add("emails", "claimed", 1)
    await scene.reporter.send()
    assert scene.store.taken == [("emails", {"claimed": 4})]
    await scene.stop()


async def test_what_got_no_answer_is_not_sent_again() -> None:
    """It may have been applied, and would count twice."""
    scene = Scene()
    scene.store.error = StoreUnavailable("no answer")
    scene.tally.add("emails", "claimed", 3)
    await scene.reporter.send()
    scene.store.error = None
    scene.tally.add("emails", "claimed", 1)
    await scene.reporter.send()
    assert scene.store.taken == [("emails", {"claimed": 1})]
    await scene.stop()


async def test_nothing_is_sent_while_the_store_is_known_to_be_away() -> None:
    """Through an outage the counts are kept: only the call that finds it out is lost."""
    scene = Scene()
    scene.reachability.failed("claiming", StoreUnavailable("away"))
    scene.tally.add("emails", "claimed", 1)
    for _ in range(3):
        await scene.pausing()
        await scene.second_passes()
    assert scene.store.taken == []
    scene.reachability.answered()
    await scene.second_passes()
    assert scene.store.taken == [("emails", {"claimed": 1})]
    await scene.stop()


@pytest.mark.parametrize("queue", ["emails", "reports"])
def test_counts_that_are_put_back_add_to_new_ones(queue: str) -> None:
    tally = Tally()
    tally.add(queue, "claimed", 1)
    taken = tally.take()
    assert not tally.changed.is_set()
    tally.add(queue, "claimed", 2)
    tally.put_back(queue, taken[queue])
    assert tally.take()[queue] == {"claimed": 3}
