"""The lock of last resort: a hash in the fence's own Redis. No consensus, but one primary's word."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from headrace.election.errors import Conflict, Unavailable
from headrace.election.record import Record, Version
from headrace.election.redis_fence import Client, normalised, owners
from headrace.election.scripts import script
from headrace.errors import HeadraceError

_FIELDS = (b"rv", b"holder", b"term", b"duration", b"seq", b"acquired", b"epoch")


class RedisLock:
    """A lock under the hash tag ``tag``; ``client`` is closed with it. ``owner``: as of `RedisFence`."""

    def __init__(self, client: Client, tag: str, owner: bytes | None = None) -> None:
        self._client = client
        self._key = f"{{{tag}}}:lock".encode()
        self._keys = [self._key, *owners(owner)]

    async def read(self, timeout: float) -> tuple[Version, Record] | None:
        """See `headrace.election.record.Lock.read`."""
        try:
            values = await self._client.command("HMGET", self._key, *_FIELDS)
        except HeadraceError as error:
            raise normalised(error) from error
        version, holder, term, duration, seq, acquired, epoch = values
        if version is None:
            return None
        try:
            return version, Record(holder.decode(), int(term), float(duration), int(seq), int(acquired), int(epoch))
        except (ValueError, AttributeError, TypeError) as error:
            raise Unavailable(f"redis {self._client.server}: {self._key!r} is not a lock", ambiguous=False) from error

    async def create(self, record: Record, timeout: float) -> Version:
        """See `headrace.election.record.Lock.create`."""
        return await self._write(b"", record)

    async def cas(self, version: Version, record: Record, timeout: float) -> Version:
        """See `headrace.election.record.Lock.cas`."""
        return await self._write(cast(bytes, version), record)

    async def close(self) -> None:
        """See `headrace.election.record.Lock.close`."""
        await self._client.close()

    async def _write(self, version: bytes, record: Record) -> Version:
        content: Sequence[str | int] = (
            record.holder, record.term, f"{record.duration:g}", record.seq or 0, record.acquired, record.epoch,
        )  # fmt: skip
        try:
            following = await self._client.run(script("lock"), self._keys, [version, *content])
        except HeadraceError as error:
            raise normalised(error) from error
        if following == 0:
            raise Conflict(f"redis {self._client.server}: lock {self._key!r} is at another version")
        return cast(bytes, following)
