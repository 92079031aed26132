"""The registry of workers on Redis."""

from __future__ import annotations

from collections.abc import Sequence

import msgpack

from headrace.stores.bounds import check_batch
from headrace.stores.protocols.registry import Beat, WorkerEntry
from headrace.stores.redis.access import RedisAccess, pack
from headrace.stores.redis.scripts import script


class RedisRegistry(RedisAccess):
    """Implements `headrace.stores.protocols.registry.RegistrySteps`."""

    async def workers(self, queue: str) -> list[WorkerEntry]:
        """Return the workers that were heard of within a minute."""
        return await self._entries(queue, b"")

    async def about_workers(self, queue: str, workers: Sequence[str]) -> list[WorkerEntry]:
        """Return what is known of workers, for an hour also of those that are gone."""
        check_batch(workers)
        return await self._entries(queue, pack(list(workers))) if workers else []

    async def stop_claiming(self, queue: str, workers: Sequence[str], ttl_ms: int) -> None:
        """Let workers claim nothing from this queue for ``ttl_ms``; 0: let them claim again."""
        check_batch(workers)
        keys = self._keys.of_queue_script("stop_claiming", queue)
        await self._client.run(script("stop_claiming"), keys, (ttl_ms, pack(list(workers))))

    async def _entries(self, queue: str, asked: bytes) -> list[WorkerEntry]:
        keys = self._keys.of_queue_script("workers", queue)
        now, found = await self._client.run(script("workers"), keys, (asked,))
        flat = iter(found)
        return [
            _entry(_shown(name), now, heard, said(about), till, gone=bool(gone))
            for name, heard, about, till, gone in zip(flat, flat, flat, flat, flat, strict=True)
        ]


def _entry(worker: str, now: int, heard: int, beat: Beat, till: int, *, gone: bool) -> WorkerEntry:
    stop_ms, stands_by_ms = till - now if till >= 0 else None, max(0, beat.stands_by_till - now)
    return WorkerEntry(worker, max(0, now - heard), beat, stop_ms, gone, stands_by_ms)


def _shown(name: bytes) -> str:
    return name.decode(errors="replace")


def said(packed: bytes) -> Beat:
    """Return what a worker said of itself; nothing where it cannot be read, which is the audit's business."""
    try:
        return beat_of(packed)
    except (ValueError, TypeError, msgpack.UnpackException):
        return Beat()


def beat_of(packed: bytes) -> Beat:
    """Return what a worker said of itself; of what another release says, the part that is known here.

    Raises ValueError, TypeError or msgpack's UnpackException for anything else.
    """
    beat = Beat(*msgpack.unpackb(packed)[: len(Beat._fields)]) if packed else Beat()
    if not isinstance(beat.stands_by_till, int):
        raise TypeError("stands_by_till is no time")
    return beat
