"""Jobs whose lease was lost: how many of them a worker runs at a time, and how it makes room for one that runs alone.

A worker may be asked to make room by a claim's answer. It then claims nothing until it runs nothing, says every few
seconds that it still does, and takes the job that waits, unless another worker was idle before it.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from typing import NamedTuple

from headrace.topology import PartitionRef

ASK_SECONDS = 3.0
"""Between two calls that say that this worker still makes room, well within `headrace.stores.bounds.ROOM_MS`."""


def group_size(concurrency: int) -> int:
    """Return how many suspects a worker with so many slots runs at a time: the square root, rounded up.

    With *n* suspects and groups of *g*, it takes n / g rounds to find the group that kills its worker, and up to g more
    to find the job: the sum is least at the root of n.
    """
    return math.isqrt(concurrency - 1) + 1


class Step(NamedTuple):
    """The next claim: where, in how many seconds, and whether it may take the job that runs alone."""

    ref: PartitionRef
    wait: float
    alone: bool


class Seclusion:
    """The partitions where a job waits to be run alone by this worker, the one that asked first at the head."""

    def __init__(self) -> None:
        self._refs: OrderedDict[PartitionRef, None] = OrderedDict()
        self._asked_at = float("-inf")
        self._refused = False

    def __bool__(self) -> bool:
        return bool(self._refs)

    def next(self, *, idle: bool, now: float) -> Step:
        """Decide what follows; ``idle``: this worker runs nothing."""
        ref = next(iter(self._refs))
        # An idle worker that was refused the job all the same (a limit holds it back) does not ask without a pause.
        soon = idle and not self._refused
        return Step(ref, 0.0 if soon else max(0.0, self._asked_at + ASK_SECONDS - now), idle)

    def stepped(self, now: float) -> None:
        """Take note of a claim that is being made."""
        self._asked_at = now

    def drop(self, queue: str) -> None:
        """Make room for no job of this queue any more."""
        for ref in [ref for ref in self._refs if ref.queue == queue]:
            del self._refs[ref]

    def answered(self, ref: PartitionRef, *, asked: bool, taken: bool, alone: bool = False) -> None:
        """Take note of a claim's answer: whether it asks for room, and whether it brought a job that runs alone.

        ``alone``: the claim was made for such a job. After one there may be more, so the next claim asks again.
        """
        if not asked and not taken:
            self._refs.pop(ref, None)
        else:
            self._refs.setdefault(ref)
        self._refused = asked and alone
