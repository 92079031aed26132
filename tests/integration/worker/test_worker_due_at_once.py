"""Thousands of jobs that fall due in one moment: no script takes all, and a metric tells how late they began."""

from __future__ import annotations

import asyncio
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from headrace import App, Context, Store, Worker
from headrace.stores.base import MAX_PROMOTE
from headrace.telemetry.prometheus import PrometheusMetrics
from headrace.topology import PartitionRef
from tests.integration.worker.support import QUEUE, Faulty, empty, eventually, put, queue, settings

JOBS = 3000


class Portions(Faulty):
    """Notes how many jobs each claim has promoted; one claim at a time, so that it is known which one it was."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.promoted: list[int] = []
        self._turn = asyncio.Lock()

    async def _scheduled(self) -> int:
        (counts,) = await self._store.counts([PartitionRef(QUEUE, 1, 0)])
        return counts.scheduled

    def __getattr__(self, name: str) -> Any:
        call = super().__getattr__(name)
        if name != "claim":
            return call

        async def claim(*args: Any, **options: Any) -> Any:
            async with self._turn:
                before = await self._scheduled()
                answer = await call(*args, **options)
                self.promoted.append(before - await self._scheduled())
                return answer

        return claim


async def test_QC5_thousands_due_at_once_are_promoted_in_portions_and_their_lateness_is_told(store: Store) -> None:
    await put(await queue(store), "note", range(JOBS), delay=0.5)

    async def due() -> bool:
        (counts,) = await store.counts([PartitionRef(QUEUE, 1, 0)])
        return counts.scheduled == JOBS and counts.now >= (counts.next_due_at or 0) + 500

    await eventually(due)
    app, ran = App(), []

    @app.handler("note")
    async def note(ctx: Context, payload: int) -> None:
        ran.append(payload)

    portions, metrics = Portions(store), PrometheusMetrics()
    worker = Worker(app, portions, settings(concurrency=100), metrics)
    running = asyncio.ensure_future(worker.run())
    await eventually(lambda: empty(store), 60)
    await worker.stop()
    await running
    assert sorted(ran) == list(range(JOBS))
    assert sum(portions.promoted) == JOBS
    assert max(portions.promoted) == MAX_PROMOTE
    told = {
        sample.name: sample.value
        for family in text_string_to_metric_families(metrics.render()[1].decode())
        for sample in family.samples
        if sample.labels == {"queue": QUEUE}
    }
    assert told["headrace_start_delay_seconds_count"] == JOBS
    assert told["headrace_start_delay_seconds_sum"] > 0
