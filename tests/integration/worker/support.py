"""What the worker tests share: a worker that runs while a block does, counts of what it told, and conditions."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from inspect import isawaitable
from typing import Any, cast

from headrace import App, JobSpec, Producer, Store, Worker, WorkerSettings
from headrace.envelope import decode_record
from headrace.job import Job
from headrace.lifecycle import promote
from headrace.stores.base import Counts
from headrace.topology import PartitionRef
from headrace.worker import Ending
from headrace.worker.leases import Execution
from headrace.worker.metrics import NoMetrics, Outcome

QUEUE = "emails"
WITHIN = 60.0


async def eventually(check: Callable[[], Any], within: float = WITHIN) -> Any:
    """Wait until ``check`` (plain or async) returns something true; return it. Fails after ``within`` seconds."""
    ends = time.monotonic() + within
    while True:
        found = check()
        if isawaitable(found):
            found = await found
        if found:
            return found
        assert time.monotonic() < ends, "the condition did not come true in time"
        await asyncio.sleep(0.005)


class Told(NoMetrics):
    """Metrics that remember."""

    def __init__(self) -> None:
        self.outcomes: Counter[str] = Counter()
        self.lost = self.poison = 0
        self.claims: list[int] = []
        self.unavailable = 0
        self.terms: list[str] = []
        self.duties: Counter[str] = Counter()

    def claimed(self, queue: str, runs: Collection[Execution]) -> None:
        self.claims.append(len(runs))

    def settled(self, queue: str, outcome: Outcome, runs: Sequence[Execution]) -> None:
        self.outcomes[outcome] += len(runs)

    def poisoned(self, queue: str, jobs: int) -> None:
        self.poison += jobs

    def leases_lost(self, queue: str, jobs: int) -> None:
        self.lost += jobs

    def store_unavailable(self) -> None:
        self.unavailable += 1

    def duty_ran(self, queue: str, duty: str, seconds: float, *, failed: bool) -> None:
        self.duties[f"{duty} failed" if failed else duty] += 1

    def term_ended(self, queue: str, reason: str) -> None:
        self.terms.append(reason)


def settings(**given: Any) -> WorkerSettings:
    """Settings for a test: one queue, four slots, little grace."""
    return WorkerSettings(**{"queues": QUEUE, "concurrency": 4, "grace_seconds": 5, "worker_id": "w", **given})


class Running:
    """A worker in this event loop."""

    def __init__(self, app: App, store: Store, **given: Any) -> None:
        self.told = Told()
        self.worker = Worker(app, store, settings(**given), self.told)
        self.task = asyncio.create_task(self.worker.run())

    async def stop(self, *, at_once: bool = False) -> Ending:
        await self.worker.stop(at_once=at_once)
        return await self.task


@asynccontextmanager
async def working(app: App, store: Store, **given: Any) -> AsyncIterator[Running]:
    """Run a worker while the block does; it ends at once afterwards."""
    running = Running(app, store, **given)
    try:
        await running.worker.started.wait()
        yield running
    finally:
        await running.stop(at_once=True)


class ThreadWorker:
    """A worker with an event loop of its own, so that a handler may block another worker's."""

    def __init__(self, app: App, store: Store, **given: Any) -> None:
        self.told = Told()
        self._app, self._store, self._given = app, store, given
        self._loop: asyncio.AbstractEventLoop | None = None
        self._worker: Worker | None = None
        self._ready = threading.Event()
        self._thread = threading.Thread(target=asyncio.run, args=(self._run(),), daemon=True)

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        store = self._store.clone()
        self._worker = Worker(self._app, store, settings(**self._given), self.told)
        self._ready.set()
        await self._worker.run()
        await store.close()

    def __enter__(self) -> ThreadWorker:
        self._thread.start()
        assert self._ready.wait(WITHIN)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._loop is not None
        assert self._worker is not None
        self._loop.call_soon_threadsafe(lambda: cast(Worker, self._worker).request_stop(at_once=True))
        self._thread.join(WITHIN)
        assert not self._thread.is_alive()


class Faulty:
    """A store of which single calls can be held up or lose their answer; everything else goes to the real one.

    ``before`` and ``after`` hold the errors of the next calls by method, None for a call that goes well.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self.hold: dict[str, asyncio.Event] = {}
        self.before: dict[str, list[Exception | None]] = {}
        self.after: dict[str, list[Exception | None]] = {}
        self.calls: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        target = getattr(self._store, name)
        if name in ("clone", "close", "beside") or not callable(target):
            return target

        async def call(*args: Any, **kwargs: Any) -> Any:
            self.calls[name] += 1
            if (held := self.hold.get(name)) is not None:
                await held.wait()
            if (errors := self.before.get(name)) and (error := errors.pop(0)):
                raise error
            answer = await cast(Awaitable[Any], target(*args, **kwargs))
            if (errors := self.after.get(name)) and (error := errors.pop(0)):
                raise error
            return answer

        return call


class HeldAcks(Faulty):
    """Holds acknowledgements up until ``gate`` is set, alone or as part of a claim; ``sent`` counts them."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.gate = asyncio.Event()
        self.sent = 0

    def __getattr__(self, name: str) -> Any:
        call = super().__getattr__(name)
        if name not in ("ack", "claim"):
            return call

        async def send(*args: Any, **options: Any) -> Any:
            if args[1] if name == "ack" else options.get("acks") or (args[5] if len(args) > 5 else ()):
                self.sent += 1
                await self.gate.wait()
            return await call(*args, **options)

        return send


class Counted(Faulty):
    """Counts the calls of its clones too, in ``cloned``: those of the timers and the waiters."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.cloned = Counter[str]()

    def clone(self) -> Store:
        clone = Faulty(self._store.clone())
        clone.calls = self.cloned
        return cast(Store, clone)


async def queue(store: Store, partitions: int = 1, version: int = 1, name: str = QUEUE) -> Producer:
    """Promote a version and return a producer."""
    await promote(store, name, version, partitions)
    return Producer(store)


async def put(producer: Producer, type: str, payloads: Any, **given: Any) -> list[str]:
    """Enqueue a job per payload; their ids."""
    return [job.id for job in await producer.enqueue_many(QUEUE, [JobSpec(type, each, **given) for each in payloads])]


async def sizes(store: Store, name: str = QUEUE) -> dict[str, int]:
    """Jobs per state over all partitions of all versions, only states that are not empty."""
    total: Counter[str] = Counter()
    for each in await all_counts(store, name):
        total.update(each.nonempty())
    return dict(total)


async def all_counts(store: Store, name: str = QUEUE) -> list[Counts]:
    topology = await store.read_topology(name)
    assert topology is not None
    return await store.counts([ref for version in topology.versions for ref in topology.refs(version)])


async def sizes_are(store: Store, expected: dict[str, int]) -> bool:
    return await sizes(store) == expected


async def empty(store: Store) -> bool:
    return await sizes(store) == {}


async def only_job(store: Store, ref: PartitionRef | None = None) -> Job:
    """Claim the one ready job of a partition, to look at it; it stays leased."""
    at = ref or PartitionRef(QUEUE, 1, 0)

    async def claimed() -> Any:
        return (await store.claim(at, "onlooker", next(_seq), 1, 60_000)).jobs

    (found,) = await eventually(claimed)
    return decode_record(
        found.key[1:], found.record, found.changes, queue=at.queue, version=at.version, partition=at.partition
    )


_seq = iter(range(1, 1_000_000))
