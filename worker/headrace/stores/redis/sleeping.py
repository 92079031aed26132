"""Queues without workers, on Redis."""

from __future__ import annotations

from typing import Any

from headrace.stores.protocols.sleeping import Glance, Nap, Wakes
from headrace.stores.redis.access import RedisAccess
from headrace.stores.redis.scripts import script
from headrace.topology import PartitionRef

MOST_WAKES = 1000


class RedisSleeping(RedisAccess):
    """Implements `headrace.stores.protocols.sleeping.SleepingSteps`."""

    async def sleep(self, ref: PartitionRef, horizon_ms: int) -> Nap:
        """SLEEP: put a partition to sleep, unless it holds a job that needs a worker."""
        asleep, due, now = await self._run("sleep", ref, horizon_ms)
        return Nap(bool(asleep), None if due < 0 else due, now)

    async def glance(self, queue: str) -> Glance:
        """Look at a queue's hints."""
        ready, due, now = await self._client.run(script("glance"), self._keys.of_queue_script("glance", queue), ())
        return Glance(bool(ready), None if due < 0 else due, now)

    async def last_wake(self) -> bytes:
        """Return the cursor of now."""
        return (
            _newest(await self._client.command("XREVRANGE", self._keys.shared("wakes"), "+", "-", "COUNT", 1)) or b"0-0"
        )

    async def wait_wakes(self, after: bytes, timeout: float) -> Wakes:
        """Wait at most ``timeout`` seconds for queues that were woken since the cursor ``after``."""
        key, most = self._keys.shared("wakes"), max(1, round(timeout * 1000))
        reply = await self._client.blocking(timeout, "XREAD", "COUNT", MOST_WAKES, "BLOCK", most, "STREAMS", key, after)
        entries = reply[0][1] if reply else []
        told = (fields[1] for _, fields in entries if fields[0] == b"q")  # nothing else is ours
        queues = dict.fromkeys(name.decode(errors="replace") for name in told)
        return Wakes(_newest(entries[-1:]) or after, tuple(queues))


def _newest(entries: list[Any]) -> bytes | None:
    return bytes(entries[0][0]) if entries else None
