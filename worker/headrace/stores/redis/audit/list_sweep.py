"""Reading a list from its tail to its head, page by page, while jobs are pushed, popped and taken out.

The distance of two entries that stay never changes, so each entry has a coordinate: its distance from the first one
that was read. Entries that are pushed later have negative ones. What was read is remembered as one 64-bit hash per
entry.

An entry that is taken out gives its place to the last one of the list. So the entry from which the reader counts, its
anchor, may be gone; then an older one serves, and what was read nearer to the tail is read again.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

import msgpack

from headrace.redis.client import Argument
from headrace.stores.redis.access import pack

LISTS = ("r0", "r1", "r2", "suspects", "alone")
"""Lists that hold jobs, in the order of the scripts; the entries of the last two carry their lane."""

SMALLEST_PAGE, LARGEST_PAGE = 8, 150
PAGE_BYTES = 1 << 18
SHORT = 800
"""A list of so many entries is looked through whole when something is to be said of one moment."""
LOST = 8
"""Anchors that are tried, one after the other, before a list is begun anew."""
MARGIN, STEADY = 300, 5
"""Entries between the tail and an anchor that is to be there some steps later, and how many such are tried."""
NEAR = 25
"""Up to there, and of what is pushed later, one of so many entries is an anchor; else one of each page."""


class Anchor(NamedTuple):
    """An entry from which others can be counted.

    ``coordinate`` of the entry, ``beside``: the next one towards the head.
    """

    coordinate: int
    entry: bytes
    beside: bytes


class ListSweep:
    """One list of a partition, as far as it was read.

    ``number`` counts from 1, as in the scripts. ``before``: a reading of the same list that had to be given up.
    """

    def __init__(self, number: int, before: ListSweep | None = None) -> None:
        self.number = number
        self.done = False
        self.began: int | None = None
        """Shifts of the partition when the list was begun; what was taken out since may have moved unread entries."""
        self._older = array("q")
        self._newer = array("q")
        self._forgotten = array("q", before.hashes() if before else ())
        self._anchors: deque[Anchor] = deque()
        self._behind = self._shifts = self._took = self._length = self._lost = 0
        self._page: int = before._page if before else SMALLEST_PAGE

    @property
    def name(self) -> str:
        """Name of the list's key."""
        return LISTS[self.number - 1]

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """Yield (hash, coordinate) of every entry that was read, from the anchor on."""
        yield from ((value, number) for number, value in enumerate(self._older))
        yield from ((value, -1 - number) for number, value in enumerate(self._newer))

    @property
    def forgot(self) -> bool:
        """Whether the place of an entry that was read is not known any more."""
        return bool(self._forgotten)

    @property
    def shifted(self) -> bool:
        """Whether entries may have come to other places since the list was begun."""
        return self.began is not None and self._shifts != self.began

    def hashes(self) -> Iterator[int]:
        """Yield the hash of every entry that was read, also of those whose place is not known any more."""
        yield from self._older
        yield from self._newer
        yield from self._forgotten

    @property
    def known(self) -> int:
        """Number of entries that were read, from the anchor on."""
        return len(self._older) + len(self._newer)

    def question(self, *, tailwards: bool) -> tuple[Argument, ...]:
        """Return the arguments of AUDIT_LIST for the next page: towards the head, or of what was pushed since."""
        seen = pack([*self._seen(self._anchors[0]), 0]) if self.known else b""
        return (self.number, "tail" if tailwards else "head", self._page, seen)

    def seen(self) -> list[list[Any]]:
        """Return what AUDIT_CONFIRM is told of the entries that were read: of one of these anchors, the next one, ...

        Each as in ``lua/lib/anchors.lua``, and how much farther from the tail it is than the first. The first is so far
        from it that most likely it stays where it is.
        """
        steady = self._steady()
        return [[*self._seen(each), each.coordinate - steady[0].coordinate] for each in steady]

    def from_anchor(self, coordinate: int) -> int:
        """Return the distance of an entry from the first anchor of `seen`; below 0 if it is nearer to the tail."""
        return coordinate - self._steady()[0].coordinate

    def _seen(self, anchor: Anchor) -> list[Any]:
        newer = anchor.coordinate - self._anchors[0].coordinate
        distance, pops = self._behind + newer, (self._took, self._length - self._behind - newer)
        return [anchor.entry, distance, self.known - newer, anchor.beside, self._shifts, *pops]

    def _steady(self) -> list[Anchor]:
        newest = self._anchors[0].coordinate
        steady = islice((each for each in self._anchors if each.coordinate >= newest + MARGIN), STEADY)
        return list(steady) or [self._anchors[0]]

    def answer(self, reply: Sequence[Any], *, tailwards: bool) -> Iterator[tuple[int, bytes, list[Any]]]:
        """Take a page in; yield (distance from the tail, entry, what is wrong) of its entries that are not sound.

        ``done`` says afterwards whether nothing is left to read in that direction.
        """
        _, self._shifts, self._took, self._length, behind, left, read, packed, odd = reply
        entries: list[bytes] = msgpack.unpackb(packed, raw=True)
        known = self.known
        self._behind, self._lost = behind, 0
        if self.began is None:
            self.began = self._shifts
        if tailwards:
            for n, entry in enumerate(entries):
                if n % NEAR == 0 or n == len(entries) - 1:
                    beside = entries[n - 1] if n else self._anchors[0].entry
                    coordinate = -len(self._newer) - 1 - n
                    self._anchors.appendleft(Anchor(coordinate, entry, beside))
            self._behind = behind - len(entries)
            self._newer.extend(hash(self._id(entry)) for entry in entries)
        else:
            first = len(self._older)
            if entries and first == 1:
                self._anchors[-1] = self._anchors[-1]._replace(beside=entries[0])
            good = len(entries) - (known > 0 or len(entries) > 1)  # all that have another beside them
            for n in range(0, good, NEAR if first < MARGIN else LARGEST_PAGE):
                beside = entries[n + 1] if n + 1 < len(entries) else b""
                self._anchors.append(Anchor(first + n, entries[n], beside))
            self._older.extend(hash(self._id(entry)) for entry in entries)
        self.done = left == 0
        self._adapt(read, len(entries))
        for position, *rest in msgpack.unpackb(odd, raw=True):
            distance = behind - 1 - position if tailwards else behind + known + position
            yield distance, entries[position], rest

    def fall_back(self, shifts: int) -> bool:
        """Count from an older anchor, since this one is not there; False if the list must be begun anew.

        ``shifts``: of the partition now. Each took one entry from the tail of a list, so one that was farther from it
        is there most likely.
        """
        shifted, self._lost = shifts - self._shifts, self._lost + 1
        if shifted <= 0 or self._lost > LOST:
            return False
        lost = self._anchors.popleft().coordinate
        while self._anchors and self._behind + self._anchors[0].coordinate - lost < shifted:
            self._anchors.popleft()
        if not self._anchors:
            return False
        anchor = self._anchors[0].coordinate
        self._behind += anchor - lost
        self._forgotten.extend(self._newer[max(0, -anchor) :])
        del self._newer[max(0, -anchor) :]
        if anchor > 0:  # its coordinate is 0 from now on
            self._forgotten.extend(self._older[:anchor])
            del self._older[:anchor]
            self._anchors = deque(each._replace(coordinate=each.coordinate - anchor) for each in self._anchors)
        return True

    def give_up_seen(self, shifts: int) -> bool:
        """Count from other anchors than those of `seen`, of which none is there; False if it must be begun anew."""
        gone = self._steady()
        if shifts == self.began or gone[0] is self._anchors[0]:
            return False
        self._anchors = deque(each for each in self._anchors if each not in gone)
        return True

    def _adapt(self, read: int, entries: int) -> None:
        """Make pages of large records smaller, so that a script stays short."""
        wanted = PAGE_BYTES * entries // max(1, read) if entries else LARGEST_PAGE
        self._page = max(1, min(wanted, LARGEST_PAGE, self._page * 4))

    def _id(self, entry: bytes) -> bytes:
        return entry[1:] if self.number > 3 else entry
