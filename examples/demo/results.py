"""Where the results lie: in Redis hashes outside the queue's prefix, so that they outlive the queue."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import redis.asyncio as redis


class Results:
    """Results of one queue's jobs. One event loop; `close` when done."""

    def __init__(self, url: str, queue: str) -> None:
        self._redis: Any = redis.Redis.from_url(url, decode_responses=True)
        self._results = f"demo-results:{queue}"  # path -> JSON of size, lines, sha256 and the version that ran the job
        self._runs = f"demo-runs:{queue}"  # path -> how often its job ran to the end
        self._versions = f"demo-versions:{queue}"  # version -> how many runs

    async def record(self, path: str, result: Mapping[str, Any], version: int) -> None:
        """Store the result of one run."""
        # In one transaction: a result without its count, or the reverse, would make the comparison wrong.
        async with self._redis.pipeline(transaction=True) as pipe:
            pipe.hset(self._results, path, json.dumps({**result, "version": version}))
            pipe.hincrby(self._runs, path, 1)
            pipe.hincrby(self._versions, str(version), 1)
            await pipe.execute()

    async def count(self) -> int:
        """Return how many files have a result."""
        return int(await self._redis.hlen(self._results))

    async def all(self) -> dict[str, dict[str, Any]]:
        """Return every result by path."""
        return {path: json.loads(text) for path, text in (await self._redis.hgetall(self._results)).items()}

    async def runs(self) -> dict[str, int]:
        """Return how often each path's job ran."""
        return {path: int(count) for path, count in (await self._redis.hgetall(self._runs)).items()}

    async def jobs_by_version(self) -> dict[int, int]:
        """Return how many runs each version saw."""
        return {int(version): int(jobs) for version, jobs in (await self._redis.hgetall(self._versions)).items()}

    async def remove(self) -> None:
        """Delete everything."""
        await self._redis.delete(self._results, self._runs, self._versions)

    async def close(self) -> None:
        """Close the connection."""
        await self._redis.aclose()
