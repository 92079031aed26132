"""Moves jobs that wait in older versions to the active one, or buries them, as the queue's settings say."""

from __future__ import annotations

from functools import partial

from headrace.agreement import mark_older
from headrace.lifecycle import drain_look_ms
from headrace.maintenance.signs import Signs
from headrace.maintenance.turn import Turn
from headrace.migration import bury_jobs, drain_action, move_marked, tidy_arrivals
from headrace.settings import DrainSettings
from headrace.stores.base import Counts
from headrace.topology import PartitionRef, Topology

REST = 20.0
"""Time between looks, as a multiple of the time that the last one took, at least."""
ROUNDS = 20
"""Steps of at most 100 jobs on one partition before it is the next one's turn."""


class Migration:
    """Looks at versions that drain and are not to keep their jobs, and forgets marks that a dead leader left."""

    name = "migration"

    def __init__(self) -> None:
        self._seen: tuple[int, DrainSettings] | None = None
        self._look_at: float | None = None
        self._begun = False

    def due(self, signs: Signs, now: float) -> float | None:
        """As `headrace.maintenance.duty.Duty.due`."""
        topology = signs.topology
        if topology is None or topology.deleting or not topology.older:
            self._seen = self._look_at = None
        elif self._seen != (seen := (topology.epoch, topology.settings.drain)):
            self._seen, self._look_at = seen, now
        return self._look_at

    async def run(self, turn: Turn, signs: Signs) -> None:
        """As `headrace.maintenance.duty.Duty.run`."""
        topology = signs.topology
        if topology is None:
            return
        began, drain = turn.now(), topology.settings.drain
        if _moves(drain):
            # An older partition that still took jobs could take one with the id of a job that has left another one.
            await mark_older(turn.store, topology, turn.each)
        if not self._begun:
            await self._tidied(turn, topology, topology.active)
            self._begun = True
        left: list[Counts] = []
        for version in topology.older:
            refs = topology.refs(version)
            for ref, count in zip(refs, await self._tidied(turn, topology, version), strict=True):
                if count.waiting + count.moving and _moves(drain):
                    await self._empty(turn, topology, ref, count)
                    left.append(await turn.step(partial(turn.count, ref)))
                elif count.live:
                    left.append(count)
        pause = max(drain_look_ms(left, drain.timeout_ms) / 1000, (turn.now() - began) * REST)
        self._look_at = turn.now() + pause if _moves(drain) else None

    async def _tidied(self, turn: Turn, topology: Topology, version: int) -> list[Counts]:
        """Forget marks of arrival that a leader left in a version, which would keep it from ending; its counts."""
        refs = topology.refs(version)
        counts = await turn.each(refs, turn.count)
        for ref in (ref for ref, count in zip(refs, counts, strict=True) if count.arrived):
            while await turn.step(partial(tidy_arrivals, turn.store, ref, turn.fence(topology))):
                pass
        return counts

    async def _empty(self, turn: Turn, topology: Topology, ref: PartitionRef, count: Counts) -> None:
        """Take the jobs that wait out of one partition, as far as some rounds reach."""
        drain, store = topology.settings.drain, turn.store
        action = "migrate" if count.moving else drain_action(drain, count)
        for _ in range(ROUNDS):
            if action == "migrate":
                done = await turn.step(lambda: move_marked(store, topology, ref, turn.fence(topology)))
            elif action == "dead_letter" and not topology.owner:  # an operator does that itself, and tells of it
                done = await turn.step(lambda: bury_jobs(store, ref, drain, fence=turn.fence(topology)))
            else:
                return
            if not done:
                return


def _moves(drain: DrainSettings) -> bool:
    return drain.policy == "migrate" or drain.on_timeout != "wait"
