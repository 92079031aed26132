"""What a script reads of jobs is bounded by bytes, however large they are: seen in the commands that it runs."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable

import pytest
import redis

from headrace.audit import audit
from headrace.lifecycle import promote
from headrace.migration import move_jobs
from headrace.stores.base import MAX_STEP_BYTES, Accepted, Fence, Unknown
from headrace.stores.redis import RedisStore
from tests.conformance.steps import QUEUE, Worker, created, enqueue, ids, new, ref, settled
from tests.services.redis import RedisServer

JOBS = 20
SIZE = 200_000
PAGE_BYTES = 1 << 20
"""What one step of an audit reads at most, or one larger record."""
READING = {"HGET": 1, "HMGET": 0}
"""Commands that read values of a hash, and how many fields each names; 0: all of its arguments."""


class Reads:
    """The records that each script reads, one number per script: how many bytes of them at most."""

    def __init__(self, server: RedisServer, prefix: str) -> None:
        self._server = server
        self._jobs = re.compile(rf"\{{{prefix}:[^}}]*\}}:jobs")

    async def of(self, step: Awaitable[object], size: int = SIZE) -> list[int]:
        """Run a step; bytes that each script of it reads, where each job has ``size`` bytes."""
        read: list[int] = []
        with self._server.client() as client, client.monitor() as monitor:
            await step
            with self._server.client() as other:
                other.echo("the end")
            while (seen := monitor.next_command())["command"] != "ECHO the end":
                name, *words = seen["command"].split(" ")
                if name.upper() == "EVALSHA":
                    read.append(0)
                elif seen["client_type"] == "lua" and name in READING and self._jobs.fullmatch(words[0]):
                    read[-1] += size * len(words[1:])
        return read


@pytest.fixture
def reads(redis_server: RedisServer, prefix: str) -> Reads:
    return Reads(redis_server, prefix)


@pytest.fixture
async def store(redis_server: RedisServer, prefix: str) -> AsyncIterator[RedisStore]:
    store = RedisStore(redis_server.url, prefix=prefix)
    yield store
    await store.close()


async def large(store: RedisStore, number: int = JOBS) -> list[str]:
    """Enqueue large jobs, one call each."""
    names = [f"large-{n}" for n in range(number)]
    for name in names:
        await enqueue(store, new(name, payload="x" * SIZE))
    return names


async def test_what_one_claim_reads_is_bounded_by_bytes(store: RedisStore, reads: Reads) -> None:
    await created(store)
    names = await large(store)
    worker = Worker(store)

    async def claimed() -> None:
        claim = await worker.claim()
        assert ids(claim) == names[:1]
        names.pop(0)
        await store.ack(ref(), settled(claim))

    for _ in range(3):
        assert max(await reads.of(claimed())) <= MAX_STEP_BYTES
    # Beside small ones, too: as many of them as there are in front.
    await store.release(ref(), [])
    assert sum(await reads.of(worker.claim())) <= MAX_STEP_BYTES


async def test_what_moves_to_another_version_is_known_to_be_large_there(store: RedisStore, reads: Reads) -> None:
    await created(store)
    await large(store, 8)
    await promote(store, QUEUE, 2, 1)
    for _ in range(8):
        await move_jobs(store, ref(), Fence(1, "leader"))
    at = ref(0, 2)
    assert max(await reads.of(Worker(store).claim(at=at))) <= MAX_STEP_BYTES


async def test_an_enqueue_does_not_read_the_jobs_that_live(store: RedisStore, reads: Reads) -> None:
    await created(store)
    names = await large(store)

    async def again() -> None:
        answer = await enqueue(store, *names, "another")
        assert answer == Accepted(frozenset(range(len(names))))

    assert max(await reads.of(again())) == 0


async def test_an_enqueue_of_small_jobs_asks_for_all_of_them_at_once(store: RedisStore, reads: Reads) -> None:
    await created(store)
    await enqueue(store, "small")
    assert sum(await reads.of(enqueue(store, "small", "another"), size=1)) == 2


@pytest.mark.parametrize("parked", [False, True])
async def test_what_one_step_of_an_audit_reads_is_bounded_by_bytes(
    store: RedisStore, redis_server: RedisServer, reads: Reads, parked: bool
) -> None:
    await created(store)
    await large(store)
    if parked:
        worker = Worker(store)
        while (claim := await worker.claim()).jobs:
            await store.park(ref(), [Unknown(*each, "send") for each in settled(claim)])

    async def audited() -> None:
        result = await audit(store, QUEUE, load=1.0)
        assert (result.leftovers, result.records) == ([], JOBS)

    read = await reads.of(audited())
    assert max(read) <= PAGE_BYTES
    assert sum(read) >= JOBS * SIZE  # all of it, in several steps
    assert len([each for each in read if each]) >= JOBS * SIZE // PAGE_BYTES


def leaves_values_out(client: redis.Redis, jobs: str) -> bool:
    """Whether HSCAN of this server can."""
    try:
        client.execute_command("HSCAN", jobs, 0, "NOVALUES")  # type: ignore[no-untyped-call]
    except redis.ResponseError:
        return False
    return True


async def test_a_scan_names_records_without_reading_them(
    store: RedisStore, redis_server: RedisServer, prefix: str
) -> None:
    await created(store)
    await large(store, 40)
    with redis_server.client() as client, client.monitor() as monitor:
        await audit(store, QUEUE, load=1.0)
        with redis_server.client() as other:
            without = leaves_values_out(other, f"{{{prefix}:{QUEUE}:1:0}}:jobs")
            other.echo("the end")
        scans = []
        while (seen := monitor.next_command())["command"] != "ECHO the end":
            if seen["client_type"] == "lua" and seen["command"].startswith(f"HSCAN {{{prefix}:{QUEUE}:1:0}}:jobs"):
                scans.append(seen["command"].split(" ")[2:])
    assert scans
    for _, _, count, *rest in scans:
        assert rest == ["NOVALUES"] or int(float(count)) <= 16
    assert all("NOVALUES" in scan for scan in scans) or not without
