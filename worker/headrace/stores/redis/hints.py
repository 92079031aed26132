"""Wake-up hints in the Cluster form: the queue's keys lie on other nodes than the partitions', so they follow a script.

If a client dies in between, the hint is lost; then the partition is found by its next due time, by the next job, or by
the workers' sweep, which looks at one partition every few seconds.
"""

from __future__ import annotations

from typing import NamedTuple

from headrace.redis.cluster import ClusterClient
from headrace.stores.redis.keys import Keys
from headrace.stores.redis.scripts import script
from headrace.topology import PartitionRef


class Outlook(NamedTuple):
    """What a claim's script said: more jobs are ready, or when the partition needs attention (ms, -1 never)."""

    more: int
    due: int


class ClusterHints:
    """Gives the hints of partitions after their scripts."""

    def __init__(self, client: ClusterClient, keys: Keys) -> None:
        self._client = client
        self._keys = keys

    async def give(self, ref: PartitionRef, *, ready: int = 0, due: int = -1) -> None:
        """Hint at jobs that became ready (1), and at the earliest time (ms) of a job that waits (-1: none)."""
        if ready or due >= 0:
            keys = self._keys.of_queue_script("hint", ref.queue)
            await self._client.run(script("hint"), keys, (ref.label, ready, due))

    async def before_claim(self, ref: PartitionRef) -> bytes:
        """Take the partition's hint and return its due time as stored, which `after_claim` compares."""
        await self._client.command("ZREM", self._keys.queue(ref.queue, "hot"), ref.label)
        return await self._client.command("ZSCORE", self._keys.queue(ref.queue, "due"), ref.label) or b""

    async def after_claim(self, ref: PartitionRef, worker: str, outlook: Outlook, seen: bytes) -> tuple[bytes, int]:
        """Set the partition's hints by what a claim found; the label of the next hot one, ms for the alarm or -1."""
        keys = self._keys.of_queue_script("claimed", ref.queue)
        reply = await self._client.run(script("claimed"), keys, (ref.label, worker, outlook.more, outlook.due, seen))
        return reply[0], reply[1]

    async def wake(self, queue: str) -> None:
        """Say that a sleeping queue has got a job."""
        await self._client.run(script("wake"), self._keys.of_queue_script("wake", queue), (queue,))

    async def forget(self, ref: PartitionRef) -> None:
        """Remove every hint of a partition that is gone."""
        await self._client.run(script("forget"), self._keys.of_queue_script("forget", ref.queue), (ref.label,))

    async def parked(self, ref: PartitionRef, now: int) -> None:
        """Note that a job was parked in the partition."""
        keys = self._keys.of_queue_script("note_parked", ref.queue)
        await self._client.run(script("note_parked"), keys, (ref.label, now, 0))

    async def unparked(self, ref: PartitionRef) -> None:
        """Note that nothing is parked in the partition any more."""
        await self._client.command("ZREM", self._keys.queue(ref.queue, "parked"), ref.label)
