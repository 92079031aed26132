"""The fence in Redis, beside the keys that it guards."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import Any

import redis.asyncio as redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from headrace.election.errors import Forbidden, LockError, Unavailable
from headrace.election.fence import Accepted, Answer, Claim, FenceView, Held, Stale, Token
from headrace.election.scripts import script
from headrace.errors import AccessDenied, HeadraceError, StoreUnavailable
from headrace.redis.client import Argument, RedisClient

_RECONNECT = 1.0
_SILENCE = 5.0


def fence_key(tag: str) -> bytes:
    """Return the key of the fence under the hash tag ``tag``, e.g. ``{headrace:emails}:fence``."""
    return f"{{{tag}}}:fence".encode()


def normalised(error: HeadraceError) -> LockError:
    """Return the lock error for one of the Redis client's."""
    if isinstance(error, AccessDenied):
        return Forbidden(str(error))
    return Unavailable(str(error), ambiguous=isinstance(error, StoreUnavailable))


class RedisFence:
    """The fence under one hash tag, on connections of its own.

    ``url`` as for the store. ``call_timeout``: seconds for a reply. Every call is one script, attempted once.
    """

    def __init__(self, url: str, tag: str, *, call_timeout: float) -> None:
        self._client = RedisClient(url, call_timeout=call_timeout, connect_timeout=call_timeout)
        self._url = url
        self._keys = [fence_key(tag)]
        self._channel = f"{{{tag}}}:leader".encode()

    async def claim(self, claim: Claim, ttl: float, timeout: float) -> Answer:
        """See `headrace.election.fence.Fence.claim`."""
        args = (claim.holder, claim.nonce, claim.backend, claim.rank, claim.term, round(ttl * 1000))
        match await self._run("claim", args):
            case [b"ok", epoch]:
                return Accepted(epoch)
            case [b"held", rank, left]:
                return Held(rank, left / 1000)
            case [b"stale", high]:
                return Stale(high)
            case other:
                raise Unavailable(f"redis {self._client.server}: unexpected reply {other!r}", ambiguous=True)

    async def beat(self, token: Token, ttl: float, timeout: float) -> bool:
        """See `headrace.election.fence.Fence.beat`."""
        try:
            await self._run("beat", (token.epoch, token.nonce, round(ttl * 1000)))
        except Unavailable as error:
            if not error.ambiguous and "FENCED" in str(error):
                return False
            raise
        return True

    async def release(self, nonce: str, timeout: float) -> None:
        """See `headrace.election.fence.Fence.release`."""
        await self._run("release", (nonce,))

    async def read(self, timeout: float) -> FenceView:
        """See `headrace.election.fence.Fence.read`."""
        epoch, holder, backend, rank, left, since = await self._run("read", ())
        return FenceView(epoch, holder.decode(), backend.decode(), rank, left / 1000, since)

    async def announce(self, timeout: float) -> None:
        """See `headrace.election.fence.Fence.announce`."""
        try:
            await self._client.command("PUBLISH", self._channel, b"free")
        except HeadraceError as error:
            raise normalised(error) from error

    async def announcements(self) -> AsyncIterator[None]:
        """See `headrace.election.fence.Fence.announcements`."""
        while True:
            # Redis-py's own resubscribing is bypassed: it would hide that the connection is gone and spin.
            connection = redis.Redis.from_url(
                self._url, socket_connect_timeout=_SILENCE, retry=Retry(NoBackoff(), 0), protocol=2
            )
            subscription = connection.pubsub(ignore_subscribe_messages=True)
            try:
                await subscription.subscribe(self._channel)
                while True:
                    if await subscription.get_message(timeout=_SILENCE) is not None:
                        yield
            except (RedisError, OSError, TimeoutError):
                pass
            finally:
                with contextlib.suppress(RedisError, OSError, TimeoutError):
                    await subscription.aclose()  # type: ignore[no-untyped-call]
                    await connection.aclose()
            await asyncio.sleep(_RECONNECT)

    async def close(self) -> None:
        """See `headrace.election.fence.Fence.close`."""
        await self._client.close()

    async def _run(self, name: str, args: Sequence[Argument]) -> Any:
        try:
            return await self._client.run(script(name), self._keys, args)
        except HeadraceError as error:
            raise normalised(error) from error
