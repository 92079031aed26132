"""Nothing that the library makes of a URL shows its password: not what is made, nor what it consists of."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest

from headrace import App, Producer, SyncProducer, Worker, WorkerSettings, open_store
from headrace.connection import ConnectionSettings
from headrace.election.timings import STANDARD
from headrace.leadership.locks import open_locks
from headrace.leadership.settings import LeaderSettings
from headrace.rotation import follow
from headrace.stores.redis import RedisStore

PASSWORD = "s3/cr?e#t@:%&+ö [1]"
LOGIN = f"user:{quote(PASSWORD, safe='')}@"
SECRETS = (PASSWORD, quote(PASSWORD, safe=""), "s3%2F", "s3/")
URLS = (
    f"redis://{LOGIN}one/3",
    f"rediss://{LOGIN}one?ssl_cert_reqs=none",
    f"unix://{LOGIN}/run/redis.sock?db=1",
    f"redis+cluster://{LOGIN}one,two:7001",
    f"rediss+cluster://{LOGIN}one",
    f"redis+sentinel://{LOGIN}one/jobs/2?sentinel_username=s&sentinel_password={quote(PASSWORD, safe='')}",
    f"rediss+sentinel://{LOGIN}one/jobs",
)


def parts_of(root: Any) -> Iterator[Any]:
    """Whatever of the library is reachable from an object by its attributes, and in its collections."""
    seen, waiting = set[int](), [root]
    while waiting:
        each = waiting.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        if isinstance(each, dict):
            waiting += each.values()
        elif isinstance(each, list | tuple | set | frozenset):
            waiting += each
        kind = type(each)
        if not kind.__module__.startswith("headrace"):
            continue
        yield each
        names = {name for base in kind.__mro__ for name in getattr(base, "__slots__", ())} | {
            *getattr(each, "__dict__", ())
        }
        waiting += [getattr(each, name) for name in names if hasattr(each, name)]


@pytest.mark.parametrize("url", URLS)
async def test_the_repr_of_no_part_shows_a_credential(url: str) -> None:
    store = open_store(url)
    assert isinstance(store, RedisStore)
    beside = store.beside("emails")
    roots = (
        Producer(store),
        Worker(App(), store, WorkerSettings(queues=("emails",), redis_url=url)),
        ConnectionSettings(redis_url=url),
        LeaderSettings(redis_url=url),
        beside,
        beside.connect(1.0),
        open_locks(LeaderSettings(redis_url=url), lambda: beside, "emails", STANDARD),
        follow(lambda: url, open_store),
    )
    found = [part for root in roots for part in parts_of(root)]
    assert len({type(part) for part in found}) >= 15
    for part in found:
        for shown in (repr(part), str(part), f"{part}"):
            assert [secret for secret in SECRETS if secret in shown] == [], type(part)
    await store.close()


@pytest.mark.parametrize("url", URLS)
def test_a_plain_producer_shows_none_either(url: str) -> None:
    producer = SyncProducer(url)
    for part in parts_of(producer):
        assert [secret for secret in SECRETS if secret in repr(part)] == [], type(part)
    producer.close()


@pytest.mark.parametrize("url", URLS)
async def test_a_task_that_is_shown_while_it_calls_shows_none(url: str) -> None:
    """As asyncio does with one that is slow, or that nobody has awaited."""
    store = open_store(url)
    call = asyncio.ensure_future(store.read_topology("emails"))
    await asyncio.sleep(0)
    shown = "".join(map(repr, asyncio.all_tasks()))
    assert [secret for secret in SECRETS if secret in shown] == []
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)
    await store.close()
