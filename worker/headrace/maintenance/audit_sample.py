"""Looks through a few partitions now and then, and tells what no step leaves behind; it changes nothing.

What a foreign hand deleted, half a backup, or a server that evicts keys shows up within hours, without anybody asking.
`headrace audit` looks at everything, and mends.
"""

from __future__ import annotations

import logging
import random
from collections import Counter
from collections.abc import Callable
from functools import partial

from headrace.maintenance.signs import Signs
from headrace.maintenance.turn import Turn
from headrace.topology import PartitionRef, Topology

log = logging.getLogger("headrace.maintenance")

INTERVAL = 300.0
"""Seconds between two looks at a queue in which something happens."""
PARTITIONS = 4
"""Partitions of one look."""
LOAD = 0.02
"""Share of the time in which a look keeps the store busy, at most."""
SHORTEST_PAUSE = 0.001

Audited = Callable[[str, int, int], None]
"""Told queue, partitions looked through, and what was found there."""


class AuditSample:
    """One partition after the other, from a random one on. ``audited`` is told of each look, for metrics.

    A queue in which nothing happened since the last look is left alone.
    """

    name = "audit_sample"

    def __init__(self, audited: Audited | None = None, uniform: Callable[[], float] = random.random) -> None:
        self._audited: Audited = audited or (lambda queue, partitions, leftovers: None)
        self._uniform = uniform
        self._next: int | None = None
        self._activity = 0
        self._not_before: float | None = None

    def due(self, signs: Signs, now: float) -> float | None:
        """As `headrace.maintenance.duty.Duty.due`."""
        if signs.topology is None or signs.topology.deleting:
            return None
        if self._not_before is None:  # a term that is over at once need not begin with it
            self._not_before = now + INTERVAL
        if self._activity == signs.activity:
            signs.watch()
            return None
        return max(now, self._not_before)

    async def run(self, turn: Turn, signs: Signs) -> None:
        """As `headrace.maintenance.duty.Duty.run`."""
        topology, activity = signs.topology, signs.activity
        if topology is None:
            return
        found: Counter[str] = Counter()
        sample = self._sample(topology)
        breathe = partial(turn.breathe, LOAD, SHORTEST_PAUSE)
        # The names of all queues are the command's business: each queue has a leader that would read all of them.
        keys = await turn.store.audit_keys(turn.queue, repair=False, pause=breathe, other_queues=False)
        found.update(leftover.kind for leftover in keys)
        for ref in sample:
            audit = await turn.store.audit_partition(ref, repair=False, pause=breathe)
            found.update(leftover.kind for leftover in audit.leftovers)
        self._audited(turn.queue, len(sample), found.total())
        if found:
            kinds = ", ".join(f"{number} x {kind}" for kind, number in found.most_common())
            log.error(
                "queue %s: something has damaged what is stored, in %s: %s; look with: headrace audit %s",
                turn.queue,
                ", ".join(ref.label for ref in sample),
                kinds,
                turn.queue,
            )
        self._activity, self._not_before = activity, turn.now() + INTERVAL

    def _sample(self, topology: Topology) -> list[PartitionRef]:
        """Return the partitions whose turn it is."""
        refs = [ref for version in sorted(topology.versions) for ref in topology.refs(version)]
        first = int(self._uniform() * len(refs)) if self._next is None else self._next
        number = min(PARTITIONS, len(refs))
        self._next = (first + number) % len(refs)
        return [refs[(first + n) % len(refs)] for n in range(number)]
