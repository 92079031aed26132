"""What a program hands over by mistake is refused where it is handed over, by field and remedy, and never later."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from headrace import App, Context, InvalidInput, Producer, SyncProducer, Worker, open_store
from headrace.connection import ConnectionSettings
from headrace.context import Context as PlainContext
from headrace.job import Job
from headrace.stores.memory import MemoryStore
from headrace.stores.redis import RedisStore

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


def worker(value: Any) -> None:
    Worker(App(), value)


def prefix(url: str) -> Wrong:
    return lambda value: open_store(url, value)


PREFIXES = [None, 5, True, b"jobs", "", "a:b", "a{b", "a}b", "a b", "a\tb", "a\n", "a\0", "\ud800", "x" * 101]


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
        (RedisStore, "store URL", [None, 5, b"redis://127.0.0.1:6379/0", object()]),
        (Producer, "store URL", [None]),
        (SyncProducer, "store URL", [None]),
        (Producer, "store", [5, b"redis://127.0.0.1:6379/0", object(), [], MemoryStore, True]),
        (SyncProducer, "store", [5, b"redis://127.0.0.1:6379/0", object(), [], MemoryStore, True]),
        (worker, "store", [None, 5, "redis://127.0.0.1:6379/0", object(), MemoryStore]),
        (prefix("redis://127.0.0.1:1"), "prefix", PREFIXES),
        (prefix("redis+cluster://127.0.0.1:1"), "prefix", PREFIXES),
        (prefix("memory://"), "prefix", PREFIXES),
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


@pytest.mark.parametrize("give", [open_store, RedisStore, Producer, SyncProducer, worker])
def test_what_is_no_text_is_named_by_its_type_since_it_may_hold_a_password(give: Wrong) -> None:
    for value in (b"redis://:hunter2@127.0.0.1", ["redis://:hunter2@127.0.0.1"], {"url": "redis://:hunter2@127.0.0.1"}):
        with pytest.raises(InvalidInput, match=f"is {type(value).__name__} and ") as refused:
            give(value)
        assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize("name", ["headrace", "x", "Ünï-_.*?[1]@/", "x" * 100])
def test_any_other_prefix_is_taken(name: str) -> None:
    assert repr(name) in repr(open_store("redis://127.0.0.1:1", name))
    assert ConnectionSettings(prefix=name).prefix == name


@pytest.mark.parametrize("name", [name for name in PREFIXES if isinstance(name, str)])
def test_settings_refuse_the_same_prefixes(name: str) -> None:
    with pytest.raises(InvalidInput):
        ConnectionSettings(prefix=name)
