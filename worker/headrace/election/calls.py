"""Calls to locks and fence: one at a time to each, each with a limit, each ending in exactly one answer."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal

from headrace.election.errors import LockError, Unavailable
from headrace.election.record import Record

log = logging.getLogger("headrace.election")

Kind = Literal["read", "write", "release", "claim", "beat", "look"]


@dataclass(slots=True)
class Call:
    """A call under way. ``sent_at``: clock before it was sent; ``record``: what it writes; ``subject``: its nonce."""

    kind: Kind
    sent_at: float
    record: Record | None = None
    subject: str = ""
    task: asyncio.Task[None] | None = None


async def answer_of(call: Callable[[float], Awaitable[object]], timeout: float, what: str) -> object:
    """Return the result of a call, or the `LockError` that it ended with. Silence and surprises are no success."""
    try:
        async with asyncio.timeout(timeout):
            return await call(timeout)
    except TimeoutError:
        return Unavailable(f"{what}: no answer within {timeout:.2f} s", ambiguous=True)
    except LockError as error:
        return error
    except Exception as error:
        log.exception("%s failed unexpectedly; its outcome is taken as unknown", what)
        return Unavailable(f"{what}: {type(error).__name__}", ambiguous=True)
