"""A FastAPI application with producer and worker in its process: ``uvicorn examples.fastapi_app:web``.

The worker lives as long as the application: it starts before the first request, and after the last one it finishes what
runs and hands back the rest. Handlers share the event loop with requests, so long computations belong into plain
functions, which run in threads, or into workers of their own.
"""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, HTTPException, Request

from headrace import App, Context, Producer, Worker, WorkerSettings, open_store
from headrace.lifecycle import promote

QUEUE = "greetings"
handlers = App()
greeted: list[str] = []


@handlers.handler("greet")
async def greet(ctx: Context, payload: dict[str, Any]) -> None:
    greeted.append(payload["name"])


@asynccontextmanager
async def lifespan(web: FastAPI) -> AsyncIterator[None]:
    store = open_store(os.environ.get("HEADRACE_REDIS_URL", "memory://"))
    await promote(store, QUEUE, version=1, partitions=4)  # unless an operator looks after the queue
    worker = Worker(handlers, store, WorkerSettings(queues=(QUEUE,), concurrency=8))
    running = asyncio.create_task(worker.run())
    web.state.producer = Producer(store)
    try:
        yield
    finally:
        await worker.stop()
        ending = await running
        await web.state.producer.aclose()
        assert ending.clean, ending


web = FastAPI(lifespan=lifespan)


@web.post("/greetings/{name}", status_code=202)
async def ask(name: str, request: Request, delay: float = 0) -> dict[str, str]:
    producer: Producer = request.app.state.producer
    job = await producer.enqueue(QUEUE, "greet", {"name": name}, id=f"greet:{name}", delay=delay)
    if job.existing:
        raise HTTPException(409, f"{name} is about to be greeted")
    return {"id": job.id}


@web.get("/greetings")
async def seen() -> list[str]:
    return greeted
