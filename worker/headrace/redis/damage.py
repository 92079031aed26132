"""Names the key over which a call has stumbled: an error of Redis says only that one of them is damaged."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from headrace.errors import DataDamaged, HeadraceError
from headrace.redis.pipeline import Command

KindOf = Callable[[bytes], str | None]
"""Kind that a key should be, as TYPE tells it, by its name; None: not known."""


def keys_of(command: Command) -> list[bytes]:
    """Return the keys of a command: those that a script declares, else whatever has a hash tag."""
    if command[0] in ("EVALSHA", "EVAL"):
        return [key for key in command[3 : 3 + int(command[2])] if isinstance(key, bytes)]
    return [key for key in command[1:] if isinstance(key, bytes) and key.startswith(b"{") and b"}:" in key]


def damage_of(key: bytes, problem: str) -> DataDamaged:
    """Return the error for a key; its queue is the second part of its hash tag."""
    parts = key.removeprefix(b"{").partition(b"}:")[0].split(b":")
    queue = parts[1].decode(errors="replace") if len(parts) > 1 else ""
    return DataDamaged(key.decode(errors="replace"), problem, queue)


async def strange_kinds(
    keys: list[bytes], kind_of: KindOf, ask: Callable[[bytes], Awaitable[bytes]]
) -> list[tuple[bytes, str]]:
    """Return the keys that are of another kind than they should be, and of which. ``ask``: TYPE of a key."""
    kinds = [kind.decode() for kind in await asyncio.gather(*map(ask, keys))]
    return [
        (key, kind) for key, kind in zip(keys, kinds, strict=True) if kind != "none" and kind != (kind_of(key) or kind)
    ]


async def named(
    error: DataDamaged, command: Command, kind_of: KindOf, ask: Callable[[bytes], Awaitable[bytes]]
) -> DataDamaged:
    """Return the error with the key that is damaged, or with the hash tag of the call's keys if all kinds are right."""
    keys = keys_of(command)
    if not keys:
        return error
    try:
        for key, kind in await strange_kinds(keys, kind_of, ask):
            return damage_of(key, f"is a {kind} and not a {kind_of(key)}")
    except HeadraceError:  # the answer that matters is here already
        return error
    one = keys[0] if len(keys) == 1 else keys[0].partition(b"}:")[0] + b"}:*"
    return damage_of(one, error.problem)
