"""A job that another worker has taken over is left alone by the one that had it, whatever its handler does."""

from __future__ import annotations

import threading
from typing import Any, cast

from headrace import App, Context, Store
from headrace.stores.base import Release, Settled
from headrace.topology import PartitionRef
from tests.integration.worker.support import QUEUE, WITHIN, Faulty, empty, eventually, put, queue, working


class Noting(Faulty):
    """Notes which jobs each call names, also those of its clones, which the keeper of the leases uses."""

    def __init__(self, store: Store, noted: list[tuple[str, bytes]]) -> None:
        super().__init__(store)
        self.noted = noted

    def clone(self) -> Store:
        return cast(Store, Noting(self._store.clone(), self.noted))

    def __getattr__(self, name: str) -> Any:
        call = super().__getattr__(name)
        if name not in ("ack", "fail", "release", "renew", "park", "claim"):
            return call

        async def noting(*args: Any, **options: Any) -> Any:
            batches = [each for each in args if isinstance(each, list | tuple)]
            self.noted += [(name, each.key) for batch in batches for each in batch if hasattr(each, "key")]
            return await call(*args, **options)

        return noting


async def test_J4_a_job_that_another_worker_has_is_never_touched_again(store: Store) -> None:
    """Its handler does not end when told to: it goes on for many heartbeats, and then returns something."""
    app, may_end, noted = App(), threading.Event(), list[tuple[str, bytes]]()

    @app.handler("job")
    def job(ctx: Context, payload: Any) -> str:
        may_end.wait(WITHIN)
        return "too late"

    producer = await queue(store)
    await put(producer, "job", ["taken", "kept"])
    async with working(app, cast(Store, Noting(store, noted)), lease_ms=500, concurrency=2) as running:
        await eventually(lambda: len(running.worker._executor.running) == 2)
        taken, kept = running.worker._executor.running
        at = PartitionRef(QUEUE, 1, 0)
        assert await store.release(at, [Release(*taken.settled)]) == []
        (elsewhere,) = (others := await store.claim(at, "other", 1, 1, 60_000)).jobs
        assert elsewhere.key == taken.settled.key
        await eventually(lambda: running.told.lost)
        noted.clear()
        await eventually(lambda: noted.count(("renew", kept.settled.key)) >= 5)
        may_end.set()
        await eventually(lambda: running.told.outcomes["succeeded"] == 1)
        await eventually(lambda: not running.worker._executor.running)
    assert {key for _, key in noted} == {kept.settled.key}
    assert (running.told.lost, running.told.outcomes) == (1, {"succeeded": 1})
    assert await store.ack(at, [Settled(elsewhere.key, others.token)]) == []
    assert await empty(store)
