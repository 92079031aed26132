"""Commands as they go over the wire."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

from headrace.redis.pipeline import Command


def _packer() -> Callable[[Command], bytes] | None:
    try:
        import hiredis
    except ImportError:  # it is optional
        return None
    return cast(Callable[[Command], bytes], hiredis.pack_command)


_pack = _packer()


def packed(connection: Any, commands: Iterable[Command]) -> Sequence[bytes]:
    """Return commands for a connection of the Redis library.

    By hiredis where it is installed: the library itself uses only its parser, and packs an argument at a time.
    """
    if _pack is None:
        found: Sequence[bytes] = connection.pack_commands(commands)
        return found
    return list(map(_pack, commands))
