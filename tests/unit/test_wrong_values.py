"""What a program hands over by mistake is refused where it is handed over, by field and remedy, and never later."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from headrace import App, Context, InvalidInput, Producer, SyncProducer, open_store
from headrace.context import Context as PlainContext
from headrace.job import Job
from headrace.stores.memory import MemoryStore

Wrong = Callable[[Any], object]


def schedule(field: str) -> Wrong:
    def declare(value: Any) -> None:
        given: dict[str, Any] = {"name": "nightly", "type": "sweep", "queue": "reports", "cron": "0 2 * * *"}
        given[field] = value
        App().schedule(given.pop("name"), given.pop("type"), **given)

    return declare


def handler(field: str) -> Wrong:
    async def sweep(ctx: Context, payload: Any) -> None: ...

    def register(value: Any) -> None:
        given = {"type": "sweep", field: value}
        App().handler(given.pop("type"), **given)(sweep)

    return register


def producer(field: str) -> Wrong:
    return lambda value: Producer(MemoryStore(), **{field: value})


def progress(value: Any) -> None:
    PlainContext(Job("a", "emails", "send", None, 0, 0, 1, 0), math.inf).progress(value)


@pytest.mark.parametrize(
    ("give", "field", "values"),
    [
        (schedule("name"), "name", [None, 5, b"nightly"]),
        (schedule("cron"), "cron", [5, b"0 2 * * *", timedelta(hours=1)]),
        (schedule("timezone"), "timezone", ["", 0, []]),
        (schedule("max_catch_up"), "max_catch_up", [1.5, "10", None, True, math.nan]),
        (handler("type"), "type", ["a\0b", "a\nb", "\ud800"]),
        (handler("timeout"), "timeout", [math.nan, math.inf, 10**400]),
        (producer("max_payload_bytes"), "max_payload_bytes", [0, -1, 1.5, "1000", None, True]),
        (producer("retry_for"), "retry_for", [None, "1", math.nan, True]),
        (producer("wait_replicas"), "wait_replicas", [None, "1", 1.5, True]),
        (producer("wait_ms"), "wait_ms", [None, "100", 1.5, True]),
        (open_store, "store URL", [None, 5, b"redis://127.0.0.1:6379/0"]),
        (Producer, "store URL", [None]),
        (SyncProducer, "store URL", [None]),
        (progress, "value", [10**400, -(10**400)]),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_value_of_a_wrong_kind_is_refused_with_field_and_remedy(give: Wrong, field: str, values: list[Any]) -> None:
    for value in values:
        with pytest.raises(InvalidInput) as refused:
            give(value)
        assert refused.value.field == field, value
        assert refused.value.remedy.startswith("give ")


def test_a_url_that_is_not_set_is_told_as_that() -> None:
    with pytest.raises(InvalidInput, match=r"^store URL: is None and not text; give a URL such as redis://"):
        open_store(None)  # type: ignore[arg-type]
