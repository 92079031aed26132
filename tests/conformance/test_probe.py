"""Store.probe: an older partition stops taking jobs and tells what it knows, in one step."""

from __future__ import annotations

import pytest

from headrace.errors import InvalidInput
from headrace.lifecycle import promote
from headrace.stores.base import MAX_BATCH, Moved, Store
from headrace.topology import Topology
from tests.conformance.conftest import Advance
from tests.conformance.steps import (
    LONG_MS,
    QUEUE,
    Worker,
    counts,
    created,
    enqueue,
    failures,
    fresh_nonce,
    key,
    new,
    ref,
    settled,
)


async def successor(store: Store) -> Topology:
    topology = await created(store)
    return topology.promoted(2, 1)


async def test_a_probe_marks_the_partition(store: Store) -> None:
    second = await successor(store)
    assert await store.probe(ref(), second, [(key("a"), b"")]) == [False]
    assert await enqueue(store, "a") == Moved("draining", second)
    assert (await counts(store)).marked_at is not None


async def test_a_probe_of_nothing_marks_too(store: Store) -> None:
    second = await successor(store)
    assert await store.probe(ref(), second, []) == []
    assert (await counts(store)).state == "draining"


async def test_every_live_id_is_known(store: Store) -> None:
    second = await successor(store)
    worker = Worker(store)
    await enqueue(store, "leased", "retried", "dead", "done")
    claim = await worker.claim()
    await store.fail(ref(), [failures(claim, LONG_MS)[1], failures(claim, None)[2]])
    await store.ack(ref(), settled(claim)[3:])
    await enqueue(store, "ready", new("scheduled", when=-LONG_MS))
    asked = ["leased", "retried", "ready", "scheduled", "dead", "done", "never"]
    known = await store.probe(ref(), second, [(key(each), b"") for each in asked])
    assert known == [True, True, True, True, False, False, False]


async def test_V5_the_call_of_a_nonce_is_known_even_if_its_job_is_gone(store: Store) -> None:
    second = await successor(store)
    nonce, other = fresh_nonce(), fresh_nonce()
    await enqueue(store, "a", nonce=nonce)
    await store.ack(ref(), settled(await Worker(store).claim()))
    assert await store.probe(ref(), second, [(key("a"), nonce), (key("a"), other), (key("a"), b"")]) == [
        True,
        False,
        False,
    ]


async def test_a_probe_in_a_partition_without_jobs_for_ever(store: Store) -> None:
    topology = (await created(store)).promoted(2, 1)
    absent = ref(5)
    assert await store.probe(absent, topology, [(key("a"), b"x")]) == [False]
    assert (await counts(store, absent)).state == "draining"

    await enqueue(store, "a", nonce=b"x")
    await store.ack(ref(), settled(await Worker(store).claim()))
    await promote(store, QUEUE, 2, 1)
    assert (await store.close_partition(ref())).state == "closed"
    # Closed, its nonces are still known: a client may be about to find out.
    assert await store.probe(ref(), topology, [(key("a"), b"x"), (key("a"), b"y")]) == [True, False]
    await store.remove(ref())
    assert await store.probe(ref(), topology, [(key("a"), b"x")]) == [False]
    assert (await counts(store)).state == "tombstone"


async def test_a_probe_takes_up_to_the_batch_limit(store: Store) -> None:
    second = await successor(store)
    await enqueue(store, "job-7")
    known = await store.probe(ref(), second, [(key(f"job-{n}"), b"") for n in range(MAX_BATCH)])
    assert [n for n, found in enumerate(known) if found] == [7]
    with pytest.raises(InvalidInput, match="at most 1000"):
        await store.probe(ref(), second, [(key("a"), b"")] * (MAX_BATCH + 1))


async def test_V4_after_a_probe_a_stale_producer_cannot_add_the_id(store: Store, advance: Advance) -> None:
    second = await successor(store)
    nonce = fresh_nonce()
    assert await store.probe(ref(), second, [(key("x"), b"")]) == [False]
    assert isinstance(await enqueue(store, "x", nonce=nonce), Moved)
    assert await store.probe(ref(), second, [(key("x"), nonce)]) == [False]
