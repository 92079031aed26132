"""A coroutine that was returned where it should have been awaited: what it stands for has not been done."""

from __future__ import annotations

from types import CoroutineType


def unawaited(returned: object) -> TypeError | None:
    """Return the error of a run that returned a coroutine, which is closed; None if it returned anything else."""
    if not isinstance(returned, CoroutineType):
        return None
    returned.close()
    return TypeError(
        f"the run returned the coroutine {returned.__qualname__!r} instead of awaiting it, so that never ran; write "
        "`await` in front of the call, and register an async def itself"
    )
