"""Which partition is worth the next claim, and for how many jobs: hints per queue, and shares of the slots by weight.

Within a queue the hints are served in turn, whatever their version. Between queues the one is served that uses the
smallest part of its share; a queue that has nothing to run leaves its share to the others.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from typing import NamedTuple

from headrace.topology import PartitionRef

MAX_HINTS = 64
GAP_SECONDS = 0.01
"""A queue that had a hint within this time may have another one on its way, so its share is not given away yet."""


class QueueHints:
    """Hints of one queue, oldest first, without repetition.

    ``calls`` counts claims whose answer may bring a hint; ``dry`` is set while nothing is known and nothing is coming,
    which is when it makes sense to wait for a wake-up. While the queue is ``paused`` for this worker, for whichever
    reason, there are none.
    """

    def __init__(self, queue: str, weight: int = 1) -> None:
        self.queue = queue
        self.weight = weight
        self.refs: OrderedDict[PartitionRef, bool] = OrderedDict()
        """With each, whether the last claim from there brought all that it asked for."""
        self.calls = 0
        self.reserved = 0
        """Jobs that claims under way may bring."""
        self.hinted_at = float("-inf")
        self._pauses: set[str] = set()
        self.dry = asyncio.Event()
        self.dry.set()

    def add(self, ref: PartitionRef, *, plenty: bool = False) -> None:
        """Note a partition; a repetition keeps its place. ``plenty``: a claim brought all that it asked for."""
        if ref in self.refs:
            self.refs[ref] |= plenty
        elif len(self.refs) < MAX_HINTS and not self.paused:
            self.refs[ref] = plenty
        self.settle()

    @property
    def paused(self) -> bool:
        """Whether no hint is taken."""
        return bool(self._pauses)

    def pause(self, reason: str) -> list[PartitionRef]:
        """Take no hints from now on; those that are known, so that others get them."""
        self._pauses.add(reason)
        known = list(self.refs)
        self.refs.clear()
        self.settle()
        return known

    def resume(self, reason: str) -> None:
        """Take hints again, unless there is another reason not to."""
        self._pauses.discard(reason)
        self.settle()

    def settle(self) -> None:
        """Recompute ``dry``."""
        if self.refs or self.calls or self.paused:
            self.dry.clear()
        else:
            self.dry.set()


class Turn(NamedTuple):
    """The next claim: where, for how many jobs at most, and whether there may be enough for another one beside it."""

    hints: QueueHints
    ref: PartitionRef
    limit: int
    plenty: bool


class Rotation:
    """The hints of all queues of a worker, with their weights."""

    def __init__(self, weights: Mapping[str, int], clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.queues = {queue: QueueHints(queue, weight) for queue, weight in weights.items()}
        self._order = deque(self.queues.values())

    def __bool__(self) -> bool:
        return any(hints.refs for hints in self._order)

    def take(self, free: int, slots: int, used: Callable[[], Mapping[str, int]]) -> Turn | None:
        """Take the oldest hint of the queue that uses the smallest part of its share.

        ``free`` of the ``slots`` can be filled. ``used`` tells how many jobs of each queue are here. Of several queues
        that may have jobs none gets more than its share of the slots, but at least one job in turn. None if no queue
        has a hint, or only such as have their share while the answer of a claim says what the others need.
        """
        ready = [hints for hints in self._order if hints.refs]
        if not ready:
            return None
        chosen, limit = ready[0], free
        rivals = [chosen] if len(self._order) == 1 else self._rivals()
        if len(rivals) > 1:
            here = used()
            parts = {hints: here.get(hints.queue, 0) + hints.reserved for hints in ready}
            chosen = min(ready, key=lambda hints: parts[hints] / hints.weight)
            share = math.ceil(slots * chosen.weight / sum(hints.weight for hints in rivals))
            limit = min(free, share - parts[chosen])
            if limit < 1:
                if any(hints.calls and not hints.refs for hints in rivals):
                    return None
                limit = 1
        # Those that come off equal are served in turn.
        self._order.remove(chosen)
        self._order.append(chosen)
        ref, plenty = chosen.refs.popitem(last=False)
        return Turn(chosen, ref, limit, plenty)

    def _rivals(self) -> list[QueueHints]:
        """Return the queues that have jobs to claim, or may have."""
        now = self._clock()
        for hints in self._order:
            if hints.refs or hints.calls:
                hints.hinted_at = now
        return [hints for hints in self._order if now - hints.hinted_at <= GAP_SECONDS]
