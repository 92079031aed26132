"""What a producer refuses: every wrong value is named by its field before anything is sent."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from headrace.errors import HeadraceError, InvalidInput, PayloadTooLarge
from headrace.lifecycle import promote
from headrace.producer import JobSpec, Producer
from headrace.stores.memory import MemoryStore

QUEUE = "emails"


@pytest.fixture
async def producer() -> Producer:
    store = MemoryStore()
    await promote(store, QUEUE, 1, 1)
    return Producer(store, max_payload_bytes=100)


WRONG = [
    ("max_retries", 1.5),
    ("max_retries", True),
    ("max_retries", "3"),
    ("max_retries", -1),
    ("retry", {"max_retries": 1}),
    ("retry", 3),
    ("headers", ["a"]),
    ("headers", []),
    ("headers", 0),
    ("headers", {"a": 1}),
    ("delay", "5"),
    ("delay", True),
    ("delay", -1),
    ("delay", timedelta(seconds=-1)),
    ("delay", float("nan")),
    ("delay", float("inf")),
    ("timeout", "5"),
    ("timeout", 0),
    ("timeout", True),
    ("run_at", "tomorrow"),
    ("run_at", True),
    ("run_at", -5),
    ("run_at", timedelta(hours=1)),
    ("run_at", 1_900_000_000_000),
    ("run_at", datetime(2030, 1, 1)),
    ("id", 7),
    ("id", ""),
    ("type", 7),
    ("type", ""),
    ("payload", object()),
]


@pytest.mark.parametrize(("field", "value"), WRONG, ids=str)
async def test_a_wrong_value_is_refused_by_its_field(producer: Producer, field: str, value: Any) -> None:
    given: dict[str, Any] = {"type": "send", field: value}
    with pytest.raises(InvalidInput) as one:
        await producer.enqueue(QUEUE, **given)
    assert one.value.field == field
    with pytest.raises(InvalidInput) as many:
        await producer.enqueue_many(QUEUE, [*[JobSpec("send")] * 3, JobSpec(**given)])
    assert many.value.field == f"jobs[3].{field}"
    assert (many.value.problem, many.value.remedy) == (one.value.problem, one.value.remedy)


@pytest.mark.parametrize(
    ("field", "value", "told"),
    [
        ("run_at", -5, "is -5; give an aware datetime or seconds since the epoch"),
        ("type", "", "is empty; give 1 to 255 bytes of text"),
        ("type", "x" * 300, "has 300 bytes; give 1 to 255 bytes of text"),
        ("type", None, "is NoneType and not text"),
        ("max_retries", 1.5, "is 1.5; give a whole number, 0 to 1000"),
    ],
)
async def test_the_message_says_what_is_accepted(producer: Producer, field: str, value: Any, told: str) -> None:
    given: dict[str, Any] = {"type": "send", field: value}
    with pytest.raises(InvalidInput) as caught:
        await producer.enqueue(QUEUE, **given)
    assert told in str(caught.value)


async def test_a_payload_that_is_too_large_is_named_by_its_index(producer: Producer) -> None:
    with pytest.raises(PayloadTooLarge, match=r"^jobs\[1\]\.payload: 200 bytes"):
        await producer.enqueue_many(QUEUE, [JobSpec("send"), JobSpec("send", b"x" * 200)])
    with pytest.raises(PayloadTooLarge, match=r"^payload: 200 bytes"):
        await producer.enqueue(QUEUE, "send", b"x" * 200)


@pytest.mark.parametrize(
    ("jobs", "field"),
    [
        ([JobSpec("send"), {"type": "send"}], "jobs[1]"),
        ("send", "jobs[0]"),
        (JobSpec("send"), "jobs"),
        (None, "jobs"),
        (7, "jobs"),
    ],
)
async def test_only_job_specs_are_taken(producer: Producer, jobs: Any, field: str) -> None:
    with pytest.raises(InvalidInput, match="JobSpec") as caught:
        await producer.enqueue_many(QUEUE, jobs)
    assert caught.value.field == field


async def test_a_closed_producer_says_so() -> None:
    store = MemoryStore()
    await promote(store, QUEUE, 1, 1)
    producer = Producer(store)
    await producer.enqueue(QUEUE, "send")
    await producer.aclose()
    await producer.aclose()
    for call in (
        producer.enqueue(QUEUE, "send"),
        producer.enqueue_many(QUEUE, [JobSpec("send")]),
        producer.enqueue_record(QUEUE, "a", bytes(40)),
    ):
        with pytest.raises(HeadraceError, match="this Producer is closed; make a new one"):
            await call
