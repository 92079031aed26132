"""Annotated payloads: what fits is handed over as what it was annotated with, what does not is dead at once."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pytest
from pydantic import BaseModel

from headrace import App, Context, Store
from headrace.dead_letters import dead_jobs
from tests.integration.worker.support import QUEUE, empty, eventually, put, queue, sizes, working


class Email(BaseModel):
    to: str
    at: datetime


@dataclass
class Point:
    x: int


async def test_models_arrive_as_models(store: Store) -> None:
    app, seen = App(), list[Any]()

    @app.handler("async")
    async def on_loop(ctx: Context, payload: Email) -> None:
        seen.append(payload)

    @app.handler("plain")
    def in_thread(ctx: Context, payload: list[Point]) -> None:
        seen.append(payload)

    producer = await queue(store)
    email = Email(to="ada@example.com", at=datetime(2030, 1, 31))
    async with working(app, store) as running:
        await producer.enqueue(QUEUE, "async", email)
        await producer.enqueue(QUEUE, "plain", [Point(1), Point(2)])
        await eventually(lambda: running.told.outcomes == {"succeeded": 2})
    assert sorted(seen, key=str) == [[Point(1), Point(2)], email]


@pytest.mark.parametrize("kind", ["async", "plain"])
async def test_a_payload_that_does_not_fit_is_dead_at_once_and_none_of_it_is_told(
    store: Store, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    app, ran = App(), []

    if kind == "async":

        @app.handler("send")
        async def send(ctx: Context, payload: Email) -> None:
            ran.append(payload)

    else:

        @app.handler("send")
        def send_in_thread(ctx: Context, payload: Email) -> None:
            ran.append(payload)

    producer = await queue(store)
    with caplog.at_level(logging.DEBUG):
        async with working(app, store) as running:
            await put(producer, "send", [{"to": ["hunter2"]}], max_retries=5)
            await eventually(lambda: running.told.outcomes == {"dead": 1})
            await put(producer, "send", [{"to": "x", "at": "2030-01-31T12:00:00Z"}])
            await eventually(lambda: running.told.outcomes == {"dead": 1, "succeeded": 1})
    assert [email.to for email in ran] == ["x"]
    (dead,) = [each async for each in dead_jobs(store, QUEUE)]
    assert dead.job is not None
    assert dead.job.last_error == "invalid payload: to (string_type), at (missing)"
    assert [entry.status for entry in dead.job.history] == ["dead"]
    assert "hunter2" not in caplog.text
    assert await sizes(store) == {"dead": 1}


async def test_a_validation_that_fails_inside_a_handler_is_a_failed_run(store: Store) -> None:
    app = App()

    @app.handler("send")
    async def send(ctx: Context, payload: Any) -> None:
        Email.model_validate(payload)

    producer = await queue(store)
    await put(producer, "send", [{}])
    async with working(app, store) as running:
        await eventually(lambda: running.told.outcomes == {"retried": 1})
    assert not await empty(store)
