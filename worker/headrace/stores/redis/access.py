"""What every concern of the Redis store needs: client and keys, running a script, packing its arguments."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import msgpack

from headrace.errors import Fenced, StoreUnavailable
from headrace.redis.by_url import open_client
from headrace.redis.client import Argument, RedisClient
from headrace.redis.cluster import ClusterClient
from headrace.stores.bounds import TOMBSTONE_TTL_MS
from headrace.stores.prefix import check_prefix
from headrace.stores.protocols.moving import Fence
from headrace.stores.redis.hints import ClusterHints
from headrace.stores.redis.keys import Keys
from headrace.stores.redis.scripts import script
from headrace.topology import PartitionRef


def pack(flat: list[Any]) -> bytes:
    """Pack a flat list as one argument of a script."""
    # cmsgpack knows only the old raw type for strings and bytes. An error's text may hold surrogates (file names).
    return bytes(msgpack.packb(flat, use_bin_type=False, unicode_errors="replace"))


class RedisAccess:
    """Base of the concerns of `headrace.stores.redis.RedisStore`. ``_hints``: only in a Cluster, see `_hint`."""

    def __init__(self, url: str, *, prefix: str = "headrace") -> None:
        self._url = url
        self._prefix = check_prefix(prefix)
        self._client = open_client(url)
        self._keys = Keys(prefix, hinted=isinstance(self._client, RedisClient))
        self._hints = ClusterHints(self._client, self._keys) if isinstance(self._client, ClusterClient) else None

    async def _hint(self, ref: PartitionRef, *, ready: int = 0, due: int = -1) -> None:
        """Give the hints that the script could not give. They are hints: what the script did stands without them."""
        if self._hints is not None:
            with suppress(StoreUnavailable):
                await self._hints.give(ref, ready=ready, due=due)

    async def _note_parked(self, ref: PartitionRef, at: int) -> None:
        """Give the hint of jobs that were parked at that time (ms; 0: none was), as `_hint` does."""
        if self._hints is not None and at:
            with suppress(StoreUnavailable):
                await self._hints.parked(ref, at)

    async def _wake(self, queue: str) -> None:
        """Tell what the script could not tell: that the queue was asleep."""
        if self._hints is not None:
            with suppress(StoreUnavailable):
                await self._hints.wake(queue)

    async def _remove(self, ref: PartitionRef, incarnation: int, *, whatever: bool) -> bool:
        """Leave a tombstone instead of a closed partition, or of one in ``whatever`` state."""
        removed = bool(await self._run("remove", ref, ref.label, TOMBSTONE_TTL_MS, incarnation, int(whatever)))
        if removed and self._hints is not None:
            with suppress(StoreUnavailable):
                await self._hints.forget(ref)
        return removed

    async def _run(self, name: str, ref: PartitionRef, *args: Argument) -> Any:
        return await self._client.run(script(name), self._keys.of_script(name, ref), args)

    async def _fenced(self, name: str, ref: PartitionRef, fence: Fence | None, *args: Argument) -> Any:
        """Run a script that a leader, but also somebody else, may run; raises Fenced."""
        reply = await self._run(name, ref, *args, *(fence or ()))
        if fence is not None and isinstance(reply, list) and reply[:1] == [b"fenced"]:
            raise Fenced(ref.queue, ref.label, fence.epoch, reply[1])
        return reply
