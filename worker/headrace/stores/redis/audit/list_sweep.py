"""Reading a list from its tail to its head, page by page, while jobs are pushed and popped at its ends.

The distance of two entries never changes, so each entry has a coordinate: its distance from the first one that was
read. Entries that are pushed later have negative ones. What was read is remembered as one 64-bit hash per entry.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from typing import Any

import msgpack

from headrace.redis.client import Argument
from headrace.stores.redis.access import pack

LISTS = ("r0", "r1", "r2", "suspects", "alone")
"""Lists that hold jobs, in the order of the scripts; the entries of the last two carry their lane."""

SMALLEST_PAGE, LARGEST_PAGE = 8, 150
PAGE_BYTES = 1 << 18
SHORT = 800
"""A list of so many entries is looked through whole when something is to be said of one moment."""


class ListSweep:
    """One list of a partition, as far as it was read. ``number`` counts from 1, as in the scripts."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.done = False
        self._older = array("q")
        self._newer = array("q")
        self._anchor = self._beside = b""
        self._behind = self._took = self._spare = 0
        self._shifts: bytes = b"0"
        self._page = SMALLEST_PAGE

    @property
    def name(self) -> str:
        """Name of the list's key."""
        return LISTS[self.number - 1]

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """Yield (hash, coordinate) of every entry that was read."""
        yield from ((value, number) for number, value in enumerate(self._older))
        yield from ((value, -1 - number) for number, value in enumerate(self._newer))

    def hashes(self) -> Iterator[int]:
        """Yield the hash of every entry that was read."""
        yield from self._older
        yield from self._newer

    @property
    def known(self) -> int:
        """Number of entries that were read."""
        return len(self._older) + len(self._newer)

    def from_anchor(self, coordinate: int) -> int:
        """Return the distance of an entry from the newest one that was read, which is the anchor now."""
        return coordinate + len(self._newer)

    def question(self, *, tailwards: bool) -> tuple[Argument, ...]:
        """Return the arguments of AUDIT_LIST for the next page: towards the head, or of what was pushed since."""
        return (self.number, "tail" if tailwards else "head", self._page, pack(self.seen()) if self.known else b"")

    def seen(self) -> list[Any]:
        """Return what a script is told of the entries that were read, as in ``lua/lib/anchors.lua``."""
        return [self._anchor, self._behind, self.known, self._beside, self._shifts, self._took, self._spare]

    def answer(self, reply: Sequence[Any], *, tailwards: bool) -> Iterator[tuple[int, bytes, list[Any]]]:
        """Take a page in; yield (distance from the tail, entry, what is wrong) of its entries that are not sound.

        ``done`` says afterwards whether nothing is left to read in that direction.
        """
        _, self._shifts, took, length, behind, left, read, packed, odd = reply
        entries: list[bytes] = msgpack.unpackb(packed, raw=True)
        known = self.known
        self._behind = behind
        if tailwards:
            self._newer.extend(hash(self._id(entry)) for entry in entries)
            if entries:
                self._beside = entries[-2] if len(entries) > 1 else self._anchor
                self._anchor = entries[-1]
                self._behind = behind - len(entries)
                self._took, self._spare = took, length - self._behind
        else:
            if entries and not known:
                self._anchor = entries[0]
                self._took, self._spare = took, length
            if known < 2 <= known + len(entries):
                self._beside = entries[1 - known]
            self._older.extend(hash(self._id(entry)) for entry in entries)
        self.done = left == 0
        self._adapt(read, len(entries))
        for position, *rest in msgpack.unpackb(odd, raw=True):
            distance = behind - 1 - position if tailwards else behind + known + position
            yield distance, entries[position], rest

    def _adapt(self, read: int, entries: int) -> None:
        """Make pages of large records smaller, so that a script stays short."""
        wanted = PAGE_BYTES * entries // max(1, read) if entries else LARGEST_PAGE
        self._page = max(1, min(wanted, LARGEST_PAGE, self._page * 4))

    def _id(self, entry: bytes) -> bytes:
        return entry[1:] if self.number > 3 else entry
