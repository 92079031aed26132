"""Keys of another kind than ours, and entries of keys that no step can have written: found, and put out of the way.

A key of another kind is renamed, under its own hash tag, so that nothing is lost that somebody may miss.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping
from typing import Any, Final

from headrace.redis.client import RedisClient
from headrace.redis.cluster import ClusterClient
from headrace.stores.protocols.auditing import Leftover, LeftoverKind, Pause
from headrace.stores.redis.audit.fields import Entries
from headrace.stores.redis.scripts import script

APART: Final = "foreign-"
"""What the name of a key begins with that was moved out of the way; `headrace audit --scan` lists it."""
MOST_APART = 100
PAGE = 100


class KeyAudit:
    """Looks at keys by name; what they are called within their queue or partition is what leftovers say."""

    def __init__(self, client: RedisClient | ClusterClient, pause: Pause, *, repair: bool) -> None:
        self._client = client
        self._pause = pause
        self._repair = repair

    async def kinds(
        self, keys: Mapping[str, bytes], kinds: Mapping[str, str], kept: Collection[str] = ()
    ) -> list[Leftover]:
        """Return the keys of another kind, and which it is. ``kept``: those that are not moved, whatever they are."""
        asked = [self._client.command("TYPE", key) for key in keys.values()]
        found = [kind.decode() for kind in await asyncio.gather(*asked)]
        left = []
        for (name, key), kind in zip(keys.items(), found, strict=True):
            if kind not in ("none", kinds[name]):
                mends = self._repair and name not in kept
                mended = mends and await self._set_apart(name, key, kinds[name])
                if mends and not mended and await self._client.command("TYPE", key) in (b"none", kinds[name].encode()):
                    continue  # somebody else has put it right meanwhile
                left.append(Leftover("key of another kind", name, kind.encode(), mended))
        return left

    async def _set_apart(self, name: str, key: bytes, kind: str) -> bool:
        tag = key[: len(key) - len(name)]
        for number in range(1, MOST_APART):
            new = tag + f"{APART}{name}{f'-{number}' if number > 1 else ''}".encode()
            if (done := await self._client.run(script("set_apart"), (key, new), (kind,))) >= 0:
                return bool(done)
        return False

    async def entries(
        self, name: str, key: bytes, kind: str, entries: Entries, told: LeftoverKind = "entry unreadable"
    ) -> list[Leftover]:
        """Return the entries of a hash or zset that are not sound; ``told``: how they are called."""
        left = []
        async for member, value in self._pages(key, kind):
            if not entries.sound(member, value):
                seen = value if kind == "hash" else b""
                mended = await self.remove(key, kind, member, seen, entries.beside)
                if self._repair and not mended:  # it has changed meanwhile
                    now = await self._client.command("HGET" if kind == "hash" else "ZSCORE", key, member)
                    if now is None or entries.sound(member, now):
                        continue
                left.append(Leftover(told, name, member, mended))
        return left

    async def remove(
        self, key: bytes, kind: str, member: bytes, value: bytes = b"", beside: Collection[str] = ()
    ) -> bool:
        """Remove an entry, if that is wanted and it is still as it was seen; whether it was removed."""
        if not self._repair:
            return False
        return bool(await self._client.run(script("repair_entry"), (key,), (kind, member, value, *beside)))

    async def _pages(self, key: bytes, kind: str) -> AsyncIterator[tuple[bytes, bytes]]:
        cursor: Any = b"0"
        while True:
            if kind == "hash":
                cursor, flat = await self._client.command("HSCAN", key, cursor, "COUNT", PAGE)
            else:
                cursor, flat = await self._client.command("ZSCAN", key, cursor, "COUNT", PAGE)
            parts = iter(flat)
            for member, value in zip(parts, parts, strict=True):
                yield member, value
            if cursor == b"0":
                return
            await self._pause()
