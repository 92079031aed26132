"""What is left in Redis of a partition that was removed: its tombstone, and nothing that points to it."""

from __future__ import annotations

import redis

from headrace.lifecycle import promote
from headrace.stores.redis import RedisStore
from tests.conformance.steps import LONG_MS, QUEUE, Worker, created, enqueue, failures, ref, settled
from tests.services.redis import RedisServer


async def test_V3_a_removed_partition_leaves_its_tombstone_only(redis_server: RedisServer, prefix: str) -> None:
    store = RedisStore(redis_server.url, prefix=prefix)
    await created(store)
    worker = Worker(store)
    await enqueue(store, "done")
    await store.ack(ref(), settled(await worker.claim(lease_ms=LONG_MS)))
    await enqueue(store, "dead")
    await store.fail(ref(), failures(await worker.claim(lease_ms=LONG_MS), None))
    await promote(store, QUEUE, 2, 1)
    await store.close_partition(ref())
    with redis.Redis.from_url(redis_server.url, decode_responses=True) as client:
        assert client.zscore(f"{{{prefix}:{QUEUE}}}:due", "1:0") is not None  # what must go
        assert await store.remove(ref())
        assert set(client.scan_iter(f"{{{prefix}:{QUEUE}:1:*")) == {f"{{{prefix}:{QUEUE}:1:0}}:meta"}
        for hints in ("hot", "due"):
            assert client.zscore(f"{{{prefix}:{QUEUE}}}:{hints}", "1:0") is None
    await store.close()
