"""A job store as it is often written: every Redis command a round trip of its own, nothing atomic over two of them.

It loses jobs when its process dies between two commands; it is here only to compare costs (B8).
"""

from __future__ import annotations

import time
from typing import Any

import redis.asyncio as redis


class PlainStore:
    """One queue on plain commands. Times are the client's, in milliseconds."""

    def __init__(self, url: str) -> None:
        self._redis: Any = redis.Redis.from_url(url, protocol=2, decode_responses=True)

    async def close(self) -> None:
        """Close the connection."""
        await self._redis.aclose()

    async def enqueue(self, job_id: str, payload: str, delay_ms: int) -> None:
        """Store a job that becomes due after ``delay_ms``."""
        await self._redis.hset(f"plain:job:{job_id}", mapping={"payload": payload, "state": "scheduled", "attempt": 0})
        await self._redis.zadd("plain:scheduled", {job_id: _now() + delay_ms})

    async def promote_due(self) -> str | None:
        """Make the first due job ready; return its id."""
        for job_id in await self._redis.zrangebyscore("plain:scheduled", "-inf", _now(), start=0, num=1):
            if await self._redis.zrem("plain:scheduled", job_id):
                await self._redis.hset(f"plain:job:{job_id}", "state", "ready")
                await self._redis.rpush("plain:ready", job_id)
                return str(job_id)
        return None

    async def lease(self, lease_ms: int) -> str | None:
        """Take the first ready job; return its id."""
        job_id = await self._redis.lpop("plain:ready")
        if job_id is None:
            return None
        await self._redis.zadd("plain:leased", {job_id: _now() + lease_ms})
        await self._redis.hset(f"plain:job:{job_id}", "state", "leased")
        await self._redis.hgetall(f"plain:job:{job_id}")
        return str(job_id)

    async def renew(self, job_id: str, lease_ms: int) -> bool:
        """Extend a lease that is held."""
        if await self._redis.zscore("plain:leased", job_id) is None:
            return False
        await self._redis.zadd("plain:leased", {job_id: _now() + lease_ms})
        return True

    async def complete(self, job_id: str) -> bool:
        """Remove a job that is leased."""
        if not await self._redis.zrem("plain:leased", job_id):
            return False
        await self._redis.delete(f"plain:job:{job_id}")
        return True


def _now() -> int:
    return time.time_ns() // 1_000_000
