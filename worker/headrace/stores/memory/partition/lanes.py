"""The ready jobs of one partition in memory: three priority lanes, drawn by weight."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import chain


class Lanes:
    """Keys of ready jobs, by lane (their first byte): 0 before 1 before 2."""

    def __init__(self) -> None:
        self._lanes: dict[bytes, deque[bytes]] = {lane: deque() for lane in (b"0", b"1", b"2")}

    def __len__(self) -> int:
        return sum(len(lane) for lane in self._lanes.values())

    def __iter__(self) -> Iterator[bytes]:
        return chain.from_iterable(self._lanes.values())

    def remove(self, key: bytes) -> None:
        """Take a key out of its lane, wherever in it."""
        self._lanes[key[:1]].remove(key)

    def take_out(self, key: bytes) -> None:
        """Take a key out of its lane as `take_out` does."""
        take_out(self._lanes[key[:1]], key)

    def heads(self) -> list[bytes]:
        """Return the first key of each lane that has one."""
        return [lane[0] for lane in self._lanes.values() if lane]

    def push(self, key: bytes, *, head: bool = False) -> bool:
        """Add a key at the end of its lane, or its head; whether the lane was empty."""
        lane = self._lanes[key[:1]]
        if head:
            lane.appendleft(key)
        else:
            lane.append(key)
        return len(lane) == 1

    def take_first(self) -> bytes | None:
        """Take the first key of the first lane that has one."""
        return next((lane.popleft() for lane in self._lanes.values() if lane), None)

    def pop(self, wanted: int, seq: int) -> list[bytes]:
        """Take up to ``wanted`` keys with weights 7 : 2 : 1.

        What a lane does not use falls to the others. Small claims begin with another lane now and then, by the number
        ``seq`` of the claim, so that none starves. The same as ``lua/lib/lanes.lua``.
        """
        keys: list[bytes] = []
        high, normal, low = self._lanes.values()

        def take(lane: deque[bytes], most: int) -> None:
            keys.extend(lane.popleft() for _ in range(min(most, wanted - len(keys), len(lane))))

        if high or low:
            if wanted >= 10:
                for lane, weight in ((high, 7), (normal, 2), (low, 1)):
                    take(lane, wanted * weight // 10)
            elif seq % 10 == 0:
                take(low, wanted)
            elif seq % 10 in (3, 6):
                take(normal, wanted)
        for lane in (high, normal, low):
            take(lane, wanted)
        return keys


def take_out(keys: deque[bytes], key: bytes) -> None:
    """Take a key out as a server does for the price of a seek: the last one comes in its place."""
    last = keys.pop()
    if last != key:
        keys[keys.index(key)] = last
