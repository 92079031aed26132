"""A worker beside a real Redis that fills up."""

from __future__ import annotations

import asyncio
import json
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

from headrace import App, Context, Producer, QueueSettings, Retention, Worker, WorkerSettings
from headrace.lifecycle import promote
from headrace.stores import open_store
from tests.cluster.guard import Guard
from tests.cluster.ports import free_ports
from tests.integration.worker.support import eventually
from tests.services.redis import RedisServer

FULL = 64 << 20


async def test_QD2_readiness_turns_red_before_memory_ends_and_work_goes_on(process_guard: Guard) -> None:
    """At 93 %, and green again when there is room; jobs are taken and run all the while."""
    app, (port,) = App(), free_ports(1)

    @app.handler("add")
    async def add(ctx: Context, numbers: list[int]) -> int:
        return sum(numbers)

    def readiness() -> tuple[int, dict[str, Any]]:
        try:
            with urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5) as answer:
                return answer.status, json.load(answer)
        except HTTPError as error:
            return error.code, json.load(error)

    with RedisServer(options=("--maxmemory", str(FULL)), guard=process_guard) as server, server.client() as client:
        while client.info("memory")["used_memory"] < FULL * 0.92:
            client.rpush("ballast", b"x" * (128 << 10))
        store = open_store(server.url)
        await promote(store, "sums", 1, 1, settings=QueueSettings(retention=Retention()))
        worker = Worker(app, store, WorkerSettings(queues=("sums",), health_port=port))
        working = asyncio.create_task(worker.run())
        producer = Producer(store.clone())
        async with asyncio.timeout(60):
            await worker.started.wait()
            await eventually(lambda: asyncio.to_thread(lambda: readiness()[1].get("memory_enough") is False))
            status, told = await asyncio.to_thread(readiness)
            assert (status, told["ok"], told["store_reachable"]) == (503, False, True)
            assert 0.9 <= told["memory_used_ratio"] < 1
            await producer.enqueue("sums", "add", [1, 2], id="a")
            assert await producer.result("sums", "a") == 3
            client.delete("ballast")
            await eventually(lambda: asyncio.to_thread(lambda: readiness()[0] == 200))
        await worker.stop()
        await working
        await producer.aclose()
        await store.close()
