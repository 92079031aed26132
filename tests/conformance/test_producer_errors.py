"""What a producer says when calls fail: of each job whether it is in the queue, is not, or may be."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from headrace.errors import AccessDenied, HeadraceError, OutcomeUnknown, QueueFull, StoreUnavailable
from headrace.ids import partition_of
from headrace.lifecycle import configure, promote
from headrace.producer import JobSpec, Producer
from headrace.settings import QueueSettings
from headrace.stores.base import Store
from tests.conformance.actors import Gate
from tests.conformance.conftest import Complete
from tests.conformance.steps import QUEUE, created, ref, run_everything, sizes


class Failing(Gate):
    """Fails every call of the steps in ``errors``, without having applied it."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.errors: dict[str, HeadraceError] = {}

    def __getattr__(self, method: str) -> Callable[..., Awaitable[Any]]:
        call = super().__getattr__(method)

        async def step(*args: Any, **options: Any) -> Any:
            name = f"{method} {getattr(args[0], 'label', '')}".rstrip()
            if (error := self.errors.get(name)) is not None:
                raise error
            return await call(*args, **options)

        return step


def id_in(partition: int, name: str) -> str:
    """An id that two partitions route to ``partition``."""
    return next(job_id for n in range(100) if partition_of(job_id := f"{name}-{n}", 2) == partition)


async def test_calls_that_travel_together_get_their_own_errors(store: Store) -> None:
    await created(store, 2)
    await configure(store, QUEUE, QueueSettings(max_length=2))
    await Producer(store).enqueue(QUEUE, "send", id=id_in(0, "first"))
    failing = Failing(store)
    producer = Producer(failing.store, retry_for=0.05)
    await producer.enqueue(QUEUE, "send", id=id_in(0, "first"))
    failing.errors["enqueue 1:1"] = StoreUnavailable("no answer")
    full, unknown = await asyncio.gather(
        producer.enqueue(QUEUE, "send", id=id_in(0, "second")),
        producer.enqueue(QUEUE, "send", id=id_in(1, "third")),
        return_exceptions=True,
    )
    assert isinstance(full, QueueFull)
    assert isinstance(unknown, OutcomeUnknown)
    with pytest.raises(OutcomeUnknown):
        await producer.enqueue_many(QUEUE, [JobSpec("send", id=id_in(n, "fourth")) for n in range(2)])


async def test_a_full_partition_stops_no_job_of_another_one(store: Store) -> None:
    await created(store, 2)
    await configure(store, QUEUE, QueueSettings(max_length=2))
    await Producer(store).enqueue(QUEUE, "send", id=id_in(0, "first"))
    with pytest.raises(QueueFull):
        await Producer(store).enqueue_many(QUEUE, [JobSpec("send", id=id_in(n, "second")) for n in range(2)])
    assert await sizes(store, ref(1)) == {"ready": 1}


async def test_a_read_that_fails_after_a_lost_reply_leaves_the_outcome_unknown(
    store: Store, completed: Complete
) -> None:
    await created(store)
    failing = Failing(store)
    producer = Producer(failing.store)
    await producer.enqueue(QUEUE, "warm")
    failing.lose_reply("enqueue 1:0")
    sending = asyncio.ensure_future(producer.enqueue(QUEUE, "send"))
    await failing.lost.wait()
    failing.stop_before("enqueue 1:0")
    await failing.stopped()
    await run_everything(store, await promote(store, QUEUE, 2, 1))
    await completed(1)
    failing.errors["read_topology"] = StoreUnavailable("no answer")
    failing.go_on()
    with pytest.raises(OutcomeUnknown, match="no answer"):
        await sending


async def test_a_call_that_is_denied_is_not_in_doubt(store: Store) -> None:
    await created(store)
    failing = Failing(store)
    producer = Producer(failing.store, retry_for=0.05)
    await producer.enqueue(QUEUE, "warm")
    failing.errors["enqueue 1:0"] = AccessDenied("the store refused the credentials")
    with pytest.raises(AccessDenied):
        await producer.enqueue(QUEUE, "send")
    assert await sizes(store) == {"ready": 1}


async def test_V5_each_of_many_jobs_in_doubt_is_named_in_its_own_error(store: Store) -> None:
    """Whoever is told of one can enqueue it again: of a generated id nobody else knows."""
    await created(store)
    failing = Failing(store)
    producer = Producer(failing.store, retry_for=0.05)
    await producer.enqueue(QUEUE, "warm")
    failing.errors["enqueue 1:0"] = no_answer = StoreUnavailable("no answer")
    outcomes = await producer.enqueue_each(QUEUE, [JobSpec("send") for _ in range(3)])
    named = set()
    for outcome in outcomes:
        assert isinstance(outcome, OutcomeUnknown)
        told = re.fullmatch(
            r"job '(\S+)' may or may not be enqueued: .*1:0: no answer in time .*; enqueue again .*", str(outcome)
        )
        assert told is not None
        named.add(told[1])
        assert outcome.__cause__ is not None
        assert outcome.__cause__.__cause__ is no_answer
    assert len(named) == 3
    with pytest.raises(OutcomeUnknown, match=r"^job '\S+' may or may not be enqueued"):
        await producer.enqueue_many(QUEUE, [JobSpec("send") for _ in range(3)])
    failing.errors.clear()
    for job_id in named:
        assert not (await producer.enqueue(QUEUE, "send", id=job_id)).existing
