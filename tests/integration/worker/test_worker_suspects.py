"""Jobs whose leases were lost: a worker runs a few of them beside others, and those lost again with nothing beside."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from headrace import App, Context, JobSpec, QueueSettings, Store
from headrace.lifecycle import configure
from headrace.stores.base import Claim
from headrace.topology import PartitionRef
from tests.integration.worker.support import QUEUE, Faulty, all_counts, empty, eventually, put, queue, sizes, working

HERE = PartitionRef(QUEUE, 1, 0)


class Seen:
    """What handlers saw: the jobs that ran at any time together, and in which order they began."""

    def __init__(self) -> None:
        self.running: set[str] = set()
        self.together: list[frozenset[str]] = []
        self.go = asyncio.Event()
        self.app = App()
        self.app.handler("note")(self._note)
        self.app.handler("wait")(self._wait)

    async def _note(self, ctx: Context, payload: Any) -> None:
        self._begin(payload)
        await asyncio.sleep(0.01)
        self.running.discard(payload)

    async def _wait(self, ctx: Context, payload: Any) -> None:
        self._begin(payload)
        await self.go.wait()
        self.running.discard(payload)

    def _begin(self, name: str) -> None:
        self.running.add(name)
        self.together.append(frozenset(self.running))

    @property
    def began(self) -> set[str]:
        return set().union(*self.together)

    def beside(self, name: str) -> set[str]:
        """Whatever ran while this job did."""
        return set().union(*(each for each in self.together if name in each)) - {name}


async def lost(store: Store, times: int, jobs: int) -> None:
    """A worker takes everything and is never heard of again, so many times."""
    for time in range(times):
        claim = await store.claim(HERE, f"doomed-{time}", 1, 256, 1, suspects=256)
        assert len(claim.jobs) == jobs

        async def ended(expected: int = jobs) -> bool:
            return await store.recover(HERE) == expected or (await all_counts(store))[0].leased == 0

        await eventually(ended)


async def test_V15_a_worker_runs_a_few_suspects_at_a_time_beside_others(store: Store) -> None:
    producer = await queue(store)
    await put(producer, "note", [f"lost-{n}" for n in range(12)])
    await lost(store, 1, 12)
    await put(producer, "note", [f"fresh-{n}" for n in range(12)])
    seen = Seen()
    async with working(seen.app, store, concurrency=9):
        await eventually(lambda: empty(store))
    suspects = [sum(name.startswith("lost") for name in each) for each in seen.together]
    assert max(suspects) <= 3
    assert len(seen.began) == 24


async def test_V15_what_was_lost_twice_runs_with_nothing_beside_it_and_the_worker_goes_on_afterwards(
    store: Store,
) -> None:
    producer = await queue(store)
    await put(producer, "note", ["a", "b", "c"])
    await lost(store, 2, 3)
    await put(producer, "wait", ["long-1", "long-2"])
    seen = Seen()
    async with working(seen.app, store, concurrency=4):
        await put(producer, "note", [f"fresh-{n}" for n in range(30)])
        await asyncio.sleep(0)
        seen.go.set()
        await eventually(lambda: empty(store))
    assert len(seen.began) == 35
    for name in ("a", "b", "c"):
        assert seen.beside(name) == set()


async def only(store: Store, name: str, expected: dict[str, int]) -> bool:
    return await sizes(store, name) == expected


class Listening(Faulty):
    """Keeps the answers of claims."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.answers: list[Claim] = []

    async def claim(self, *args: Any, **options: Any) -> Claim:
        answer = await self._store.claim(*args, **options)
        self.answers.append(answer)
        return answer


async def test_V15_a_busy_worker_that_is_asked_makes_room_and_another_one_goes_on(store: Store) -> None:
    producer = await queue(store)
    await queue(store, name="others")
    await put(producer, "note", ["odd"])
    await lost(store, 2, 1)
    await configure(store, QUEUE, QueueSettings(stop="hold"))
    await producer.enqueue_many("others", [JobSpec("wait", "long")])
    first, second = Seen(), Seen()
    listening = Listening(store)
    async with working(first.app, cast(Store, listening), queues=f"{QUEUE},others", concurrency=2):
        await eventually(lambda: first.began)
        await configure(store, QUEUE, QueueSettings())
        await eventually(lambda: any(each.make_room for each in listening.answers))
        # One slot is free, and it claims nothing; a worker that is not asked does.
        await producer.enqueue_many("others", [JobSpec("note", f"fresh-{n}") for n in range(5)])
        async with working(second.app, store, queues="others", concurrency=2):
            await eventually(lambda: only(store, "others", {"leased": 1}))
        assert len(second.began) == 5
        assert first.began == {"long"}
        first.go.set()
        await eventually(lambda: empty(store))
        await eventually(lambda: "odd" in first.began)
        await producer.enqueue_many("others", [JobSpec("note", "afterwards")])
        await eventually(lambda: only(store, "others", {}))
    assert "afterwards" in first.began
    assert first.beside("odd") == set()


async def test_V15_an_idle_worker_takes_what_a_busy_one_makes_room_for(store: Store) -> None:
    producer = await queue(store)
    await queue(store, name="others")
    await put(producer, "note", ["odd"])
    await lost(store, 2, 1)
    await configure(store, QUEUE, QueueSettings(stop="hold"))
    await producer.enqueue_many("others", [JobSpec("wait", "long")])
    busy = Seen()
    listening = Listening(store)
    async with working(busy.app, cast(Store, listening), queues=f"{QUEUE},others", concurrency=2):
        await eventually(lambda: busy.began)
        await configure(store, QUEUE, QueueSettings())
        await eventually(lambda: any(each.make_room for each in listening.answers))
        claim = await store.claim(HERE, "idle", 1, 10, 60_000, alone=True)
        assert len(claim.jobs) == 1
        # It need not wait for its own job any more.
        await producer.enqueue_many("others", [JobSpec("note", "fresh")])
        await eventually(lambda: "fresh" in busy.began)
        busy.go.set()
