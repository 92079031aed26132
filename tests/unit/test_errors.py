"""Errors name the object and the field and say what to do; no message holds a credential."""

from __future__ import annotations

import inspect
import traceback

import pytest

from headrace import errors
from headrace.errors import (
    HeadraceError,
    InvalidInput,
    NotDrained,
    PayloadTooLarge,
    TopologyConflict,
    UnknownQueue,
    UnknownVersion,
    VersionActive,
    VersionNotHigher,
)
from headrace.stores import open_store
from headrace.stores.memory import MemoryStore
from headrace.stores.redis import RedisStore
from headrace.topology import Topology

SECRET = "hunter2"


def test_every_error_of_the_package_has_one_base() -> None:
    found = [each for _, each in inspect.getmembers(errors, inspect.isclass) if issubclass(each, Exception)]
    assert len(found) > 10
    assert all(issubclass(each, HeadraceError) for each in found)
    assert issubclass(InvalidInput, ValueError)


@pytest.mark.parametrize(
    ("error", "parts"),
    [
        (InvalidInput("partitions", "is 0", "give 1 to 1024"), ["partitions", "is 0", "give 1 to 1024"]),
        (UnknownQueue("emails"), ["'emails'", "headrace topology promote emails"]),
        (UnknownVersion("emails", 7, (1, 2)), ["'emails'", "version 7", "v1, v2"]),
        (UnknownVersion("emails", 7, ()), ["none"]),
        (VersionNotHigher("emails", 2, 5), ["'emails'", "version 2", "not above 5", "promote version 6"]),
        (VersionActive("emails", 2), ["'emails'", "version 2", "promote a higher version"]),
        (
            NotDrained("emails", 1, {0: {"ready": 3, "leased": 1}, 4: {"dead": 2}}, "JobsRemain"),
            ["'emails'", "version 1", "JobsRemain", "partition 0: 3 ready, 1 leased", "partition 4: 2 dead"],
        ),
        (NotDrained("emails", 1, {}, "ClientsMayRetry", wait_ms=4101), ["(ClientsMayRetry); wait 4.2 s: until then"]),
        (
            NotDrained("emails", 1, {0: {"parked": 3}}, "JobsRemain", parked_types=["a", "b"]),
            ["partition 0: 3 parked; parked types: a, b, see `headrace type list emails`"],
        ),
        (
            TopologyConflict("emails", "somebody was faster", Topology.created("emails", 3, 4)),
            ["'emails'", "somebody was faster", "epoch 1: v3 active x4"],
        ),
        (PayloadTooLarge(10, 5), ["payload", "10 bytes", "limit of 5", "reference"]),
    ],
)
def test_messages_name_object_field_and_remedy(error: HeadraceError, parts: list[str]) -> None:
    assert [part for part in parts if part not in str(error)] == []


@pytest.mark.parametrize(
    "url",
    [
        f"redis://user:{SECRET}/@host:6379/0",
        f"redis://user:{SECRET}#@host",
        f"redis://user:{SECRET}?@host",
        f"redis://user:a/{SECRET}@host:6379/0",
        f"redis://:12/{SECRET}@host",
        f"redis://:12?{SECRET}@host",
        f"redis://user:{SECRET}@host:notaport",
        f"redis://user:{SECRET}@host:99999",
        f"redis://user:{SECRET}@[::1:6379",
        f"redis://user:{SECRET}@host/database",
        f"redis://user:{SECRET}@host/0?socket_timeout={SECRET}",
        f"unix://user:a/{SECRET}@/run/redis.sock",
        f"{SECRET}@host:6379",
        f"{SECRET}://host",
        f"http://user:{SECRET}@host",
        SECRET,
        f"//{SECRET}",
        "",
    ],
)
def test_a_malformed_store_url_is_refused_without_showing_any_of_it(url: str) -> None:
    with pytest.raises(InvalidInput, match="store URL") as caught:
        open_store(url)
    shown = "".join(traceback.format_exception(caught.value))
    quoted = [line for line in shown.splitlines() if SECRET in line and not url.startswith(f"{SECRET}://")]
    assert quoted == []
    assert "redis://" in caught.value.remedy


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        (f"redis://user:{SECRET}@host:1/3", "host:1/3"),
        (f"rediss://:{SECRET}@host", "host:6379/0"),
        (f"redis://user:%2F{SECRET}@host/", "host:6379/0"),
        (f"unix://user:{SECRET}@/run/redis.sock?db=1", "/run/redis.sock"),
    ],
)
async def test_a_store_shows_where_it_is_and_not_how_it_gets_in(url: str, shown: str) -> None:
    store = open_store(url)
    assert isinstance(store, RedisStore)
    assert SECRET not in repr(store)
    assert shown in repr(store)
    await store.close()


async def test_the_url_decides_the_store() -> None:
    assert isinstance(open_store("memory://"), MemoryStore)


@pytest.mark.parametrize("prefix", ["", "a{b", "a}b", "a:b", "a b", "a\nb"])
def test_a_prefix_that_would_break_the_keys_is_refused(prefix: str) -> None:
    with pytest.raises(InvalidInput, match="prefix"):
        open_store("redis://localhost", prefix)
