"""What handlers return is kept with the finished job, where the queue keeps finished jobs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import pytest

from headrace import App, BatchContext, Context, QueueSettings
from headrace.envelope import decode_result
from headrace.errors import ResultNotKept, StoreUnavailable
from headrace.ids import encode_id
from headrace.lifecycle import promote
from headrace.settings import Retention
from headrace.stores.base import MAX_RESULT_BYTES, FinishedJob, Store
from headrace.topology import PartitionRef
from tests.integration.worker.support import QUEUE, Faulty, empty, eventually, put, queue, working

AT = PartitionRef(QUEUE, 1, 0)


@dataclass
class Sent:
    to: str
    parts: int


async def keeping(store: Store) -> None:
    await promote(store, QUEUE, 1, 1, settings=QueueSettings(retention=Retention()))


async def finished(store: Store) -> dict[bytes, FinishedJob]:
    found: dict[bytes, FinishedJob] = {}
    after = b""
    while page := await store.finished(AT, after):
        found |= {job.stored_id: job for batch in page for job in batch.jobs}
        after = page[-1].entry
    return found


def returning() -> App:
    app = App()

    @app.handler("async")
    async def as_coroutine(ctx: Context, payload: Any) -> Any:
        return payload

    @app.handler("plain")
    def as_function(ctx: Context, payload: Any) -> Any:
        return payload

    @app.handler("model")
    async def as_model(ctx: Context, payload: Any) -> Sent:
        return Sent("ada", 2)

    @app.handler("bytes")
    async def as_bytes(ctx: Context, payload: int) -> bytes:
        return b"\x00\xff" * payload

    @app.handler("odd")
    async def as_odd(ctx: Context, payload: Any) -> object:
        return object()

    @app.batch_handler("batch", max_size=2, max_wait=0.01)
    async def as_batch(ctx: BatchContext, payloads: Sequence[Any]) -> list[Any]:
        return [payload * 10 for payload in payloads]

    return app


async def test_what_a_handler_returns_is_kept(store: Store) -> None:
    await keeping(store)
    producer = await queue(store)
    given = {"async": {"n": [1, None]}, "plain": "text", "model": None, "bytes": 3, "batch": 7}
    expected: dict[str, Any] = {
        "async": {"n": [1, None]}, "plain": "text", "model": {"to": "ada", "parts": 2}, "bytes": b"\x00\xff" * 3,
        "batch": 70,
    }  # fmt: skip
    ids = {type: (await put(producer, type, [payload]))[0] for type, payload in given.items()}
    (nothing,) = await put(producer, "async", [None])
    async with working(returning(), store) as running:
        await eventually(lambda: empty(store))
    found = await finished(store)
    assert {type: decode_result(found[encode_id(id)].result) for type, id in ids.items()} == expected
    assert found[encode_id(nothing)].result == b""
    assert {job.type for job in found.values()} == set(given)
    assert {job.worker for job in found.values()} == {running.worker.identity}


async def test_a_result_that_cannot_be_kept_costs_the_job_nothing(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    await keeping(store)
    producer = await queue(store)
    ids = [*await put(producer, "bytes", [MAX_RESULT_BYTES]), *await put(producer, "odd", [None] * 3)]
    async with working(returning(), store) as running:
        await eventually(lambda: empty(store))
    assert running.told.outcomes == {"succeeded": 4}
    found = await finished(store)
    with pytest.raises(ResultNotKept, match="has 131073 bytes, the limit is 65536"):
        decode_result(found[encode_id(ids[0])].result)
    with pytest.raises(ResultNotKept, match="cannot be written as JSON"):
        decode_result(found[encode_id(ids[1])].result)
    assert len([record for record in caplog.records if "is not kept" in record.message]) == 2  # a line per type


async def test_many_large_results_go_in_several_calls(store: Store) -> None:
    await keeping(store)
    producer = await queue(store)
    ids = await put(producer, "bytes", [20_000] * 40)
    async with working(returning(), store, concurrency=40):
        await eventually(lambda: empty(store))
    found = await finished(store)
    assert {len(found[encode_id(id)].result) for id in ids} == {40_001}
    assert len(found) == 40


class Unanswered(Faulty):
    """Loses the first acknowledgement, and the answer to the second: alone, or as part of a claim."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.faults = ["sent", "answered"]

    def __getattr__(self, name: str) -> Any:
        call = super().__getattr__(name)
        if name not in ("ack", "claim"):
            return call

        async def send(*args: Any, **options: Any) -> Any:
            acks = args[1] if name == "ack" else options.get("acks") or (args[5] if len(args) > 5 else ())
            fault = self.faults.pop(0) if acks and self.faults else ""
            if fault == "sent":
                raise StoreUnavailable("away")
            answer = await call(*args, **options)
            if fault == "answered":
                raise StoreUnavailable("away")
            return answer

        return send


async def test_a_result_survives_an_acknowledgement_without_an_answer(store: Store) -> None:
    await keeping(store)
    producer = await queue(store)
    faulty = Unanswered(store)
    ids = await put(producer, "plain", ["a"])
    async with working(returning(), cast(Store, faulty)):
        await eventually(lambda: empty(store))
        await eventually(lambda: not faulty.faults)
    found = await finished(store)
    assert decode_result(found[encode_id(ids[0])].result) == "a"
    assert len(found) == 1


async def test_QD1_without_retention_nothing_is_sent(store: Store) -> None:
    producer = await queue(store)
    faulty = Faulty(store)
    sent: list[Any] = []

    class Watched:
        def __getattr__(self, name: str) -> Any:
            target = getattr(faulty, name)
            if name not in ("claim", "ack"):
                return target

            async def call(*args: Any, **kwargs: Any) -> Any:
                sent.append(kwargs.get("successes", ()) if name == "claim" else args[2])
                return await target(*args, **kwargs)

            return call

    await put(producer, "plain", ["a", "b"])
    async with working(returning(), cast(Store, Watched())):
        await eventually(lambda: empty(store))
    assert sent
    assert not any(sent)
    assert await finished(store) == {}
