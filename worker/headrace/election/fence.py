"""The fence: it decides whose writes count, whatever the locks, clocks and pauses do."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Token:
    """What a leader's script shows. Both must equal the fence's: after a failover an epoch may be minted again."""

    epoch: int
    nonce: str


@dataclass(frozen=True, slots=True)
class Claim:
    """A wish to lead. ``holder``: identity of the process; ``nonce``: of this term, never used for another.

    ``above``: an epoch that was seen where the fence is copied to; the next one is higher, whatever the fence has lost.
    """

    holder: str
    nonce: str
    backend: str
    rank: int
    term: int
    above: int = 0


@dataclass(frozen=True, slots=True)
class Accepted:
    """The claim rules now, under ``epoch``."""

    epoch: int


@dataclass(frozen=True, slots=True)
class Held:
    """Another one of higher or equal rank leads, for ``seconds`` more unless it goes on."""

    rank: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Stale:
    """The term is not above ``high``, the highest that was ever claimed through this backend."""

    high: int


Answer = Accepted | Held | Stale


@dataclass(frozen=True, slots=True)
class FenceView:
    """The fence as it is, to be shown. ``seconds``: until it may be claimed by anyone, 0 if now.

    ``since`` and ``now``: ms of the clock of its store.
    """

    epoch: int = 0
    holder: str = ""
    backend: str = ""
    rank: int = 0
    seconds: float = 0.0
    since: int = 0
    now: int = 0


class Fence(Protocol):
    """One fence, in the store whose writes it guards. Every call may raise `Unavailable`; all may be repeated."""

    async def claim(self, claim: Claim, ttl: float, timeout: float) -> Answer:
        """Ask to lead for ``ttl`` seconds. The same nonce again prolongs, and gets the same epoch."""

    async def beat(self, token: Token, ttl: float, timeout: float) -> bool:
        """Prolong; False: fenced, this token never counts again."""

    async def release(self, nonce: str, timeout: float) -> None:
        """Let others claim at once, if ``nonce`` rules; its writes are refused from now on."""

    async def read(self, timeout: float) -> FenceView:
        """Return what is there."""

    async def announce(self, timeout: float) -> None:
        """Tell candidates that a lock is free: a hint that may get lost."""

    def announcements(self) -> AsyncIterator[None]:
        """Yield once per announcement heard; lives through outages, silently."""

    async def close(self) -> None:
        """Give up connections."""
