"""Parked jobs on Redis."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.stores.bounds import MAX_SETTLE, check_batch, check_page
from headrace.stores.protocols.moving import Fence
from headrace.stores.protocols.parking import (
    ParkedLimits,
    TrimmedParked,
    Unknown,
    no_worker_knows,
    too_many_wait,
    waited_too_long,
)
from headrace.stores.redis.access import RedisAccess, pack
from headrace.stores.redis.parts import Part, from_the_first
from headrace.stores.redis.scripts import script
from headrace.topology import PartitionRef, labelled


class RedisParking(RedisAccess):
    """Implements `headrace.stores.protocols.parking.ParkingSteps`."""

    async def park(self, ref: PartitionRef, jobs: Sequence[Unknown]) -> list[int]:
        """Let jobs wait by type until a worker knows it. Returns refused indexes."""
        check_batch(jobs)

        async def send(part: Sequence[Unknown]) -> Part:
            packed = pack([field for job in part for field in job])
            refused, ready, now, done = await self._run("park", ref, ref.label, packed)
            await self._note_parked(ref, now)
            await self._hint(ref, ready=ready)
            return Part(refused, done)

        return await from_the_first(jobs, send)

    async def unpark(self, ref: PartitionRef, types: Sequence[str]) -> int:
        """Make parked jobs of these types ready; the number of them."""
        check_batch(types)
        freed, left = await self._run("unpark", ref, ref.label, pack(list(types)))
        if self._hints is not None and not left:
            await self._hints.unparked(ref)
        await self._hint(ref, ready=int(freed > 0))
        return int(freed)

    async def parked(self, ref: PartitionRef) -> dict[str, int]:
        """Return how many jobs wait for each type, at most 100 types."""
        flat = iter(await self._run("parked", ref, 100))
        return {name.decode(): int(number) for name, number in zip(flat, flat, strict=True)}

    async def parked_partitions(self, queue: str) -> dict[PartitionRef, int]:
        """Return the partitions that hold parked jobs, with the time (ms) when one was parked last."""
        flat = iter(await self._client.command("ZRANGE", self._keys.queue(queue, "parked"), 0, -1, "WITHSCORES"))
        found: dict[PartitionRef, int] = {}
        for label, at in zip(flat, flat, strict=True):
            if (ref := labelled(queue, label)) is not None:  # else of a foreign hand: the audit's business
                found[ref] = int(float(at))
        return found

    async def hint_parked(self, ref: PartitionRef, at: int) -> None:
        """Raise the hint that a partition holds parked jobs, unless there is one."""
        keys = self._keys.of_queue_script("note_parked", ref.queue)
        await self._client.run(script("note_parked"), keys, (ref.label, at, 1))

    async def bury_parked(self, ref: PartitionRef, type: str, limit: int = MAX_SETTLE) -> int:
        """Make parked jobs of this type dead letters; the number of them."""
        check_page(limit, MAX_SETTLE)
        dead, left = await self._run("bury_parked", ref, ref.label, type, no_worker_knows(type), limit)
        if self._hints is not None and not left:
            await self._hints.unparked(ref)
        return int(dead)

    async def trim_parked(
        self,
        ref: PartitionRef,
        type: str,
        limits: ParkedLimits,
        after: bytes = b"",
        limit: int = MAX_SETTLE,
        *,
        fence: Fence | None = None,
    ) -> TrimmedParked:
        """Make parked jobs of this type that are beyond the limits dead letters."""
        check_page(limit, MAX_SETTLE)
        jobs, age_ms = (-1 if most is None else most for most in limits)
        reasons = too_many_wait(type, limits), waited_too_long(type, limits)
        dead, following, left = await self._fenced(
            "trim_parked", ref, fence, ref.label, type, jobs, age_ms, after, *reasons, limit
        )
        if self._hints is not None and not left:
            await self._hints.unparked(ref)
        return TrimmedParked(int(dead), following)
