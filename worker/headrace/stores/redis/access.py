"""What every concern of the Redis store needs: client and keys, running a script, packing its arguments."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import msgpack

from headrace.errors import DataDamaged, Fenced, StoreUnavailable
from headrace.redis.by_url import open_client
from headrace.redis.client import Argument, RedisClient
from headrace.redis.cluster import ClusterClient
from headrace.redis.damage import damage_of, strange_kinds
from headrace.stores.bounds import TOMBSTONE_TTL_MS
from headrace.stores.prefix import check_prefix
from headrace.stores.protocols.moving import Fence
from headrace.stores.redis.hints import ClusterHints
from headrace.stores.redis.keys import Keys
from headrace.stores.redis.kinds import kind_of
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
        self._client.kind_of = kind_of
        self._keys = Keys(prefix, hinted=isinstance(self._client, RedisClient))
        self._hints = ClusterHints(self._client, self._keys) if isinstance(self._client, ClusterClient) else None
        self._damaged: dict[PartitionRef, set[str]] = {}  # and the scripts whose keys were sound since

    async def _hint(self, ref: PartitionRef, *, ready: int = 0, due: int = -1) -> None:
        """Give the hints that the script could not give. They are hints: what the script did stands without them."""
        if self._hints is not None:
            with suppress(StoreUnavailable, DataDamaged):
                await self._hints.give(ref, ready=ready, due=due)

    async def _note_parked(self, ref: PartitionRef, at: int) -> None:
        """Give the hint of jobs that were parked at that time (ms; 0: none was), as `_hint` does."""
        if self._hints is not None and at:
            with suppress(StoreUnavailable, DataDamaged):
                await self._hints.parked(ref, at)

    async def _wake(self, queue: str) -> None:
        """Tell what the script could not tell: that the queue was asleep."""
        if self._hints is not None:
            with suppress(StoreUnavailable, DataDamaged):
                await self._hints.wake(queue)

    async def _remove(self, ref: PartitionRef, incarnation: int, *, whatever: bool) -> bool:
        """Leave a tombstone instead of a closed partition, or of one in ``whatever`` state."""
        removed = bool(await self._run("remove", ref, ref.label, TOMBSTONE_TTL_MS, incarnation, int(whatever)))
        if removed and self._hints is not None:
            with suppress(StoreUnavailable):
                await self._hints.forget(ref)
        return removed

    async def _run(self, name: str, ref: PartitionRef, *args: Argument) -> Any:
        keys = self._keys.of_script(name, ref)
        if self._damaged and name not in self._damaged.get(ref, {name}):
            await self._check_kinds(keys)
            self._damaged[ref].add(name)
        try:
            return await self._client.run(script(name), keys, args)
        except DataDamaged:
            self._damaged[ref] = set()
            raise

    async def _check_kinds(self, keys: Sequence[bytes]) -> None:
        """Raise DataDamaged if a key is of another kind still, before a script stumbles over it half-way again."""
        for key, kind in await strange_kinds(list(keys), kind_of, self._type):
            raise damage_of(key, f"is a {kind} and not a {kind_of(key)}")

    async def _type(self, key: bytes) -> bytes:
        return bytes(await self._client.command("TYPE", key))

    async def _fenced(self, name: str, ref: PartitionRef, fence: Fence | None, *args: Argument) -> Any:
        """Run a script that a leader, but also somebody else, may run; raises Fenced."""
        reply = await self._run(name, ref, *args, *(fence or ()))
        if fence is not None and isinstance(reply, list) and reply[:1] == [b"fenced"]:
            raise Fenced(ref.queue, ref.label, fence.epoch, reply[1])
        return reply
