"""Steps whose batch may be more than one script is to do: the script says how far it came, and is called again."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
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
        with one_part(begun=start > 0):
            part = await send(batch[start:])
        refused += [start + index for index in part.refused]
        start += part.done
    return refused


async def from_the_last(batch: Sequence[T], send: Callable[[Sequence[T]], Awaitable[Part]]) -> list[int]:
    """Send all of a batch, whose last elements a call deals with; the refused indexes."""
    refused: list[int] = []
    left = len(batch)
    while left:
        with one_part(begun=left < len(batch)):
            part = await send(batch[:left])
        refused = [*part.refused, *refused]
        left -= part.done
    return refused


@contextmanager
def one_part(*, begun: bool) -> Iterator[None]:
    """Surround a call that is one of several for a batch; ``begun``: others have been applied before.

    StoreRefused then becomes StoreUnavailable: that nothing was applied is true of this call, and not of the batch.
    """
    try:
        yield
    except StoreRefused as error:
        if begun:
            raise StoreUnavailable(f"{error}; a part of the batch was applied before") from error
        raise
