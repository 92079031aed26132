"""A million finished jobs beside the live ones: what a claim costs does not depend on them."""

from __future__ import annotations

from itertools import count

from redis.asyncio import Redis

from headrace.envelope import encode_body
from headrace.ids import encode_id
from headrace.lifecycle import configure, promote
from headrace.settings import QueueSettings, Retention
from headrace.stores import open_store
from headrace.stores.base import FinishedBatch, FinishedJob, NewJob, Settled, Store, Success
from headrace.topology import PartitionRef
from tests.services.redis import RedisServer

HERE = PartitionRef("emails", 1, 0)
JOBS = 10
_numbers = count(1)


async def cycle(store: Store) -> None:
    """Enqueue, claim, and acknowledge by the next claim, with outcomes to keep."""
    jobs = [NewJob(b"1" + encode_id(f"live-{next(_numbers)}"), 0, encode_body("send", None)) for _ in range(JOBS)]
    await store.enqueue(HERE, 1, b"n%d" % next(_numbers), jobs)
    claim = await store.claim(HERE, "w", next(_numbers), JOBS, 60_000)
    acks = [Settled(job.key, claim.token) for job in claim.jobs]
    assert len(acks) == JOBS
    told = [Success("send", 0) for _ in acks]
    again = await store.claim(HERE, "w", next(_numbers), 0, 60_000, acks, successes=told)
    assert again.refused == []


async def commands_of(server: Redis, store: Store) -> dict[str, int]:
    """Commands that the server runs for one cycle, those inside of scripts included."""
    await server.config_resetstat()
    await cycle(store)
    stats = await server.info("commandstats")
    return {name: int(stat["calls"]) for name, stat in stats.items() if name not in ("cmdstat_info", "cmdstat_config")}


async def test_M14_J19_a_million_finished_jobs_do_not_slow_a_claim(prefix: str) -> None:
    with RedisServer("valkey") as own:
        store = open_store(own.url, prefix)
        server = Redis.from_url(own.url)
        many = Retention(done_count=2_000_000, done_bytes=1 << 40)
        topology = await promote(store, "emails", 1, 1, settings=QueueSettings(retention=many))
        await cycle(store)
        few = await commands_of(server, store)

        now = (await store.counts([HERE]))[0].now
        jobs = tuple(FinishedJob(encode_id(f"old-{number}"), "send", 0, b"", now, "w") for number in range(1000))
        batch = FinishedBatch(b"", jobs)
        for _ in range(20):
            assert await store.adopt_finished(HERE, [batch] * 50, topology.incarnation) == 50
        assert await server.xlen(f"{{{prefix}:emails:1:0}}:done") > 1000

        assert await commands_of(server, store) == few
        assert (await store.find_finished(HERE, [encode_id("old-7")])).jobs.keys() == {encode_id("old-7")}

        await configure(store, "emails", QueueSettings(retention=Retention(done_count=5)))
        steps = []
        while dropped := (await store.trim(HERE)).finished:
            steps.append(dropped)
        assert max(steps) <= 16 * 1000
        assert sum(steps) > 999_000
        await server.aclose()
        await store.close()
