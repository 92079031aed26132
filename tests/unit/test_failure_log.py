"""The log of failed runs: enough to see what goes wrong, however many jobs fail at once."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from headrace import App, Context, Dead, RetryPolicy
from headrace.job import Job
from headrace.testing import TestQueue
from headrace.worker.failures import LINES, MAX_SUBJECTS, FailureLog


def job(number: int, type: str = "send") -> Job:
    return Job(f"job-{number}", "emails", type, None, 0, 0, 1, 0)


async def test_QF6_many_dead_letters_are_a_few_lines_and_a_number(caplog: pytest.LogCaptureFixture) -> None:
    told = FailureLog()
    for number in range(1000):
        told.died(job(number), "ValueError: no\n  smtp.py:7 in send")
    told.died(job(0, "render"), "boom")
    told.flush()
    lines = [record.getMessage() for record in caplog.records]
    assert lines == [
        *(f"queue emails: job job-{number} (send) is dead: ValueError: no" for number in range(LINES)),
        "queue emails: job job-0 (render) is dead: boom",
        f"queue emails: {1000 - LINES} more job(s) of send are dead",
    ]
    assert {record.levelname for record in caplog.records} == {"WARNING"}
    caplog.clear()
    told.died(job(0), "again")  # a new minute
    assert "job job-0 (send) is dead: again" in caplog.text
    told.flush()


async def test_an_error_cannot_write_lines_of_its_own_or_move_a_terminal(caplog: pytest.LogCaptureFixture) -> None:
    told = FailureLog()
    told.died(job(0), "ValueError: \x1b[2J\r2026 INFO all is well\x00\u202e ü\n  smtp.py:7 in send")
    told.flush()
    (record,) = caplog.records
    assert record.getMessage() == (
        r"queue emails: job job-0 (send) is dead: ValueError: \x1b[2J\r2026 INFO all is well\x00\u202e ü"
    )


async def test_types_beyond_a_number_are_told_together(caplog: pytest.LogCaptureFixture) -> None:
    told = FailureLog()
    for number in range(MAX_SUBJECTS + 50):
        told.timed_out(job(number, f"type-{number}"), 100, goes_on=False)
    told.flush()
    assert len(caplog.records) == MAX_SUBJECTS + LINES + 1
    assert caplog.records[-1].getMessage() == f"queue emails: {50 - LINES} more job(s) of other types are timed out"


async def test_a_worker_tells_of_dead_letters_and_not_of_retries(caplog: pytest.LogCaptureFixture) -> None:
    app = App()

    @app.handler("send", retry=RetryPolicy(max_retries=1))
    async def send(ctx: Context, payload: Any) -> None:
        raise Dead("not an address") if payload == "dead" else ValueError("no")

    with caplog.at_level(logging.INFO):
        async with TestQueue(app) as queue:
            await queue.enqueue("send", "dead", id="a")
            await queue.enqueue("send", "fails", id="b")
            await queue.run_until_idle()
            assert "job a (send) is dead: not an address" in caplog.text
            assert "job b" not in caplog.text
            await queue.drain()
    assert "job b (send) is dead: ValueError: no" in caplog.text
    caplog.clear()
    with caplog.at_level(logging.DEBUG):
        async with TestQueue(app) as queue:
            await queue.enqueue("send", "fails", id="c")
            await queue.run_until_idle()
    assert "job c (send) failed and runs again: ValueError: no" in caplog.text
