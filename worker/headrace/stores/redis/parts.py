"""Steps whose batch may be more than one script is to do: the script says how far it came, and is called again."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, TypeVar

from headrace.errors import StoreRefused, StoreUnavailable

T = TypeVar("T")


class Part(NamedTuple):
    """What a script has done: ``done`` elements of its batch, of which it refused some (indexes from 0)."""

    refused: Sequence[int]
    done: int


async def from_the_first(batch: Sequence[T], send: Callable[[Sequence[T]], Awaitable[Part]]) -> list[int]:
    """Send all of a batch, whose first elements a call deals with; the refused indexes."""
    refused: list[int] = []
    start = 0
    while start < len(batch):
        part = await _sent(send, batch[start:], begun=start > 0)
        refused += [start + index for index in part.refused]
        start += part.done
    return refused


async def from_the_last(batch: Sequence[T], send: Callable[[Sequence[T]], Awaitable[Part]]) -> list[int]:
    """Send all of a batch, whose last elements a call deals with; the refused indexes."""
    refused: list[int] = []
    left = len(batch)
    while left:
        part = await _sent(send, batch[:left], begun=left < len(batch))
        refused = [*part.refused, *refused]
        left -= part.done
    return refused


async def _sent(send: Callable[[Sequence[T]], Awaitable[Part]], batch: Sequence[T], *, begun: bool) -> Part:
    try:
        return await send(batch)
    except StoreRefused as error:
        if begun:  # "nothing of it was applied" would not be true of the batch
            raise StoreUnavailable(f"{error}; a part of the batch was applied before") from error
        raise
