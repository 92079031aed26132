"""Structured logs: the job that was running where a line was written."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from headrace import (
    App,
    Context,
    RetryPolicy,
    current_run,
)
from headrace.telemetry.logs import JsonFormatter, RunFilter, configure_logging
from headrace.testing import TestQueue


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    """What the root logger writes as JSON."""
    stream = io.StringIO()
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    root.handlers.clear()
    configure_logging("json", "INFO", stream)
    yield stream
    root.handlers[:] = before
    root.setLevel(level)


async def test_a_line_of_a_handler_names_its_job(lines: io.StringIO) -> None:
    app = App()
    log = logging.getLogger("emails")

    @app.handler("async", retry=RetryPolicy(max_retries=1))
    async def sends(ctx: Context, payload: Any) -> None:
        log.info("sending to %s", "Äda", extra={"to": datetime(2026, 1, 1, tzinfo=UTC), "type": "mine"})
        if ctx.attempt == 0:
            raise ValueError("no")

    @app.handler("plain")
    def plain(ctx: Context, payload: Any) -> None:
        assert current_run() is ctx
        try:
            raise ValueError("no")
        except ValueError:
            log.exception("failed")

    async with TestQueue(app) as queue:
        first = await queue.enqueue("async")
        second = await queue.enqueue("plain")
        await queue.drain()
        assert current_run() is None
    found = [json.loads(line) for line in lines.getvalue().splitlines()]
    ours = [each for each in found if each["logger"] == "emails"]
    sent = [each for each in ours if each["message"] == "sending to Äda"]
    assert [each["attempt"] for each in sent] == [0, 1]
    assert datetime.fromisoformat(sent[0].pop("time")).tzinfo is not None
    assert sent[0] == {
        "level": "info",
        "logger": "emails",
        "message": "sending to Äda",
        "to": "2026-01-01 00:00:00+00:00",
        "type": "mine",  # what the application says wins
        "job_id": first.id,
        "queue": "default",
        "attempt": 0,
    }
    (failed,) = [each for each in ours if each["message"] == "failed"]
    assert (failed["job_id"], failed["type"], failed["level"]) == (second.id, "plain", "error")
    assert failed["error"].endswith("ValueError: no")
    # The worker itself writes no line per job.
    assert not [each for each in found if each["logger"].startswith("headrace") and "job_id" in each]


def test_outside_of_handlers_lines_have_no_job() -> None:
    record = logging.LogRecord("web", logging.INFO, "", 1, "hello %s", ("you",), None, sinfo="Stack")
    assert RunFilter().filter(record)
    line = json.loads(JsonFormatter().format(record))
    assert line.pop("time").startswith("20")
    assert line == {"level": "info", "logger": "web", "message": "hello you", "stack": "Stack"}
