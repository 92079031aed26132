"""The fence in Redis, beside the keys that it guards."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Sequence
from contextlib import aclosing, suppress
from typing import Any, Protocol

from headrace.election.errors import Forbidden, LockError, Unavailable
from headrace.election.fence import Accepted, Answer, Claim, FenceView, Held, Stale, Token
from headrace.election.scripts import script
from headrace.errors import AccessDenied, HeadraceError, StoreUnavailable
from headrace.redis.client import Argument
from headrace.redis.scripts import Script

_RECONNECT = 1.0


class Client(Protocol):
    """What fence and lock need of a connection to Redis; raises the errors of `headrace.errors`."""

    @property
    def server(self) -> str:
        """Name of the server, as it may be shown."""
        ...

    def run(self, script: Script, keys: Sequence[bytes], args: Sequence[Argument]) -> Awaitable[Any]:
        """Run a script, once."""
        ...

    def command(self, *command: Argument) -> Awaitable[Any]:
        """Run a command, once."""
        ...

    def messages(self, channel: bytes) -> AsyncGenerator[bytes, None]:
        """Yield what is published in a channel, until the connection ends."""
        ...

    async def close(self) -> None:
        """Close the connections."""


def fence_key(tag: str) -> bytes:
    """Return the key of the fence under the hash tag ``tag``, e.g. ``{headrace:emails}:fence``."""
    return f"{{{tag}}}:fence".encode()


def owners(owner: bytes | None) -> list[bytes]:
    """Return the keys of a script that follow the first: the one without which that passes, if there is such a key."""
    return [] if owner is None else [owner]


def normalised(error: HeadraceError) -> LockError:
    """Return the lock error for one of the Redis client's."""
    if isinstance(error, AccessDenied):
        return Forbidden(str(error))
    return Unavailable(str(error), ambiguous=isinstance(error, StoreUnavailable))


class RedisFence:
    """The fence under the hash tag ``tag``. Every call is one script, attempted once; ``client`` is closed with it.

    ``owner``: a key under the same tag. Where it is not there, the fence passes 8 days after its last use; None: never.
    """

    def __init__(self, client: Client, tag: str, owner: bytes | None = None) -> None:
        self._client = client
        self._keys = [fence_key(tag), *owners(owner)]
        self._channel = f"{{{tag}}}:leader".encode()

    async def claim(self, claim: Claim, ttl: float, timeout: float) -> Answer:
        """See `headrace.election.fence.Fence.claim`."""
        args = (claim.holder, claim.nonce, claim.backend, claim.rank, claim.term, round(ttl * 1000), claim.above)
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
        epoch, holder, backend, rank, left, since, now = await self._run("read", ())
        return FenceView(epoch, holder.decode(), backend.decode(), rank, left / 1000, since, now)

    async def announce(self, timeout: float) -> None:
        """See `headrace.election.fence.Fence.announce`."""
        try:
            await self._client.command("PUBLISH", self._channel, b"free")
        except HeadraceError as error:
            raise normalised(error) from error

    async def announcements(self) -> AsyncIterator[None]:
        """See `headrace.election.fence.Fence.announcements`."""
        while True:
            with suppress(HeadraceError):
                async with aclosing(self._client.messages(self._channel)) as messages:
                    async for _ in messages:
                        yield
            await asyncio.sleep(_RECONNECT)

    async def close(self) -> None:
        """See `headrace.election.fence.Fence.close`."""
        await self._client.close()

    async def _run(self, name: str, args: Sequence[Argument]) -> Any:
        try:
            return await self._client.run(script(name), self._keys, args)
        except HeadraceError as error:
            raise normalised(error) from error
