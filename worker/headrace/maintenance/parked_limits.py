"""Makes jobs that no worker knows the type of dead letters, where a limit for them is set: by number, by age, or both.

Without a limit they wait for ever, and nothing is looked at.
"""

from __future__ import annotations

import logging
import math
from functools import partial

from headrace.maintenance.signs import Signs
from headrace.maintenance.turn import Turn
from headrace.stores.base import ParkedLimits
from headrace.topology import PartitionRef, Topology

log = logging.getLogger("headrace.maintenance")

STEP_JOBS = 250
"""Jobs that one step looks at, with 256 KiB of records, so that a script stays within a few milliseconds even if all of
them die."""
SOONEST, LATEST = 1.0, 600.0
"""Seconds between two looks, at least and at most."""
LOOKS_PER_AGE = 20
"""So a job dies at most a twentieth later than its limit says, unless that is less than a second."""
INTERVAL = 60.0
"""Seconds between two looks where only the number is limited."""


class LimitedParking:
    """Looks at the partitions with parked jobs while there are any, else after something has happened.

    ``limits.jobs`` holds for one type in the whole queue: each partition of a version keeps its part, at least one. Of
    each partition the first 100 types are looked at.
    """

    name = "limited_parking"

    def __init__(self, limits: ParkedLimits) -> None:
        self._limits = limits
        self._interval = INTERVAL
        if limits.age_ms is not None:
            self._interval = min(LATEST, max(SOONEST, limits.age_ms / 1000 / LOOKS_PER_AGE))
        self._activity = -1
        self._parked = False
        self._not_before = float("-inf")

    def due(self, signs: Signs, now: float) -> float | None:
        """As `headrace.maintenance.duty.Duty.due`."""
        if self._limits == ParkedLimits() or signs.topology is None or signs.topology.deleting:
            return None
        if not self._parked and self._activity == signs.activity:
            signs.watch()
            return None
        return max(now, self._not_before)

    async def run(self, turn: Turn, signs: Signs) -> None:
        """As `headrace.maintenance.duty.Duty.run`."""
        topology, activity = signs.topology, signs.activity
        if topology is None:
            return
        parked = await turn.step(lambda: turn.store.parked_partitions(turn.queue))
        dead = 0
        for ref in parked:
            if (version := topology.versions.get(ref.version)) is not None:
                jobs = self._limits.jobs
                part = None if jobs is None else math.ceil(jobs / version.partitions)
                dead += await _trim(turn, topology, ref, self._limits._replace(jobs=part))
        if dead:
            log.warning(
                "queue %s: %d parked job(s) are dead letters now: no worker knew their types within the limits",
                turn.queue,
                dead,
            )
        self._parked, self._activity = bool(parked), activity
        self._not_before = turn.now() + self._interval


async def _trim(turn: Turn, topology: Topology, ref: PartitionRef, limits: ParkedLimits) -> int:
    dead = 0
    for kind in await turn.store.parked(ref):
        after: bytes | None = b""
        while after is not None:
            fence = turn.fence(topology)
            trimmed = await turn.step(partial(turn.store.trim_parked, ref, kind, limits, after, STEP_JOBS, fence=fence))
            dead += trimmed.dead
            after = trimmed.after or None
    return dead
