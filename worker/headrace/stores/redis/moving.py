"""Moving jobs between versions, on Redis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgpack

from headrace.errors import Fenced
from headrace.redis.client import Argument
from headrace.stores.bounds import MAX_ASIDE, check_aside, check_page
from headrace.stores.protocols.moving import Aside, Fence
from headrace.stores.redis.access import RedisAccess, pack
from headrace.topology import PartitionRef, labelled


class RedisMoving(RedisAccess):
    """Implements `headrace.stores.protocols.moving.MovingSteps`."""

    async def _led(self, name: str, ref: PartitionRef, fence: Fence, *args: Argument) -> list[Any]:
        """Run a leader's script; its reply without the verdict."""
        verdict: bytes
        reply: list[Any]
        verdict, *reply = await self._run(name, ref, *args)
        if verdict == b"fenced":
            raise Fenced(ref.queue, ref.label, fence.epoch, reply[0])
        return reply

    async def fence(self, ref: PartitionRef, fence: Fence) -> None:
        """Let the partition obey this leader from now on, and hint at it if it has ready jobs."""
        (ready,) = await self._led("fence", ref, fence, ref.label, *fence)
        await self._hint(ref, ready=ready)

    async def set_aside(self, ref: PartitionRef, fence: Fence, to: int, limit: int) -> list[Aside]:
        """Set waiting jobs of a draining partition aside; all that are aside."""
        check_aside(limit)
        packed, parked = await self._led("set_aside", ref, fence, *fence, to, limit, ref.label)
        if self._hints is not None and not parked:
            await self._hints.unparked(ref)
        if not packed:
            return []
        flat = iter(msgpack.unpackb(packed, raw=True, strict_map_key=False))
        return [
            Aside(key, to, place.decode(), int(at), kind.decode(), record, changes)
            for key, to, place, at, kind, record, changes in zip(*[flat] * 7, strict=True)
        ]

    async def adopt(
        self, ref: PartitionRef, partitions: int, fence: Fence, source: PartitionRef, jobs: Sequence[Aside]
    ) -> list[bool]:
        """Insert jobs that are set aside in ``source``, each once; whether each one is or was here."""
        check_aside(len(jobs))
        flat = [part for job in jobs for part in (job.key, job.place, job.at, job.type, job.record, job.changes)]
        adopted, ready, due, parked, roused = await self._led(
            "adopt", ref, fence, ref.label, *fence, partitions, source.label, pack(flat), ref.queue
        )
        await self._note_parked(ref, parked)
        await self._hint(ref, ready=ready, due=due)
        if roused:
            await self._wake(ref.queue)
        return list(map(bool, adopted))

    async def bury_waiting(
        self, ref: PartitionRef, reason: str, limit: int = MAX_ASIDE, *, fence: Fence | None = None
    ) -> int:
        """Make waiting jobs of a draining partition dead letters; the number of them."""
        check_aside(limit)
        dead, parked = await self._fenced("bury_waiting", ref, fence, ref.label, reason, limit)
        if self._hints is not None and not parked:
            await self._hints.unparked(ref)
        return int(dead)

    async def retarget(self, ref: PartitionRef, fence: Fence, ids: Sequence[bytes], to: int) -> None:
        """Let jobs set aside move to a newer version."""
        check_aside(len(ids))
        await self._led("retarget", ref, fence, *fence, to, pack(list(ids)))

    async def let_go(self, ref: PartitionRef, fence: Fence, ids: Sequence[bytes]) -> None:
        """Delete jobs set aside, which have been adopted elsewhere."""
        check_aside(len(ids))
        await self._led("let_go", ref, fence, *fence, pack(list(ids)))

    async def forget_arrived(self, ref: PartitionRef, fence: Fence, source: PartitionRef, ids: Sequence[bytes]) -> None:
        """Forget that jobs were adopted from ``source``."""
        check_aside(len(ids))
        await self._led("forget_arrived", ref, fence, *fence, source.label, pack(list(ids)))

    async def arrivals(self, ref: PartitionRef, limit: int = 100) -> list[tuple[bytes, PartitionRef]]:
        """Return some of the stored ids that were adopted here, and where from."""
        check_page(limit)
        flat = iter(await self._run("arrivals", ref, limit))
        found = ((stored_id, labelled(ref.queue, label)) for stored_id, label in zip(flat, flat, strict=True))
        return [(stored_id, source) for stored_id, source in found if source is not None]  # else: the audit's business

    async def still_aside(self, ref: PartitionRef, ids: Sequence[bytes]) -> list[bool]:
        """Return whether each stored id is set aside here."""
        check_page(len(ids) or 1)
        return [bool(found) for found in await self._run("still_aside", ref, pack(list(ids)))]
