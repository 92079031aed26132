"""Enqueues the jobs of schedules when they are due, and notes how far it is.

A job is enqueued first, under an id that everybody makes alike and in a step that no partition applies twice; then it
is noted under the fence. A leader that dies in between is repeated by the next one, which changes nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial

from headrace.errors import (
    DataDamaged,
    Fenced,
    OutcomeUnknown,
    QueueDeleting,
    QueueFull,
    QueueHeld,
    StoreUnavailable,
    TopologyUnreadable,
    UnknownQueue,
)
from headrace.job_spec import JobSpec
from headrace.maintenance.signs import Signs
from headrace.maintenance.turn import NotLeading, Turn
from headrace.producer import Producer
from headrace.schedules import Decision, Fate, Schedule, ScheduleMark, decide
from headrace.stores.base import Once
from headrace.topology import Topology

log = logging.getLogger("headrace.maintenance")

LONGEST_WAIT = 60.0
"""Seconds between two looks at the server's clock, which may be set."""
REFUSED_SECONDS = 30.0
"""Until the next try where the queue takes no jobs, or something is wrong with the schedule."""
RACE_SECONDS = 1.0
"""Until the next look where somebody else has noted something."""
MARGIN = 0.002
"""Seconds to wait beyond a time, for clocks that differ in a fraction of a millisecond."""

Fired = Callable[[str, str, Fate, int], None]
"""Told queue, schedule, what became of times, and of how many."""
_OF_ALL = (
    Fenced, NotLeading, OutcomeUnknown, QueueDeleting, StoreUnavailable, TopologyUnreadable, UnknownQueue,
)  # fmt: skip
"""Errors that say nothing about the one schedule at which they came."""


class DueSchedules:
    """Enqueues what the ``schedules`` of one queue ask for. ``fired`` is told of it, for metrics."""

    name = "schedules"

    def __init__(self, schedules: Sequence[Schedule], fired: Fired | None = None) -> None:
        self._schedules = tuple(schedules)
        self._fired: Fired = fired or (lambda queue, schedule, outcome, number: None)
        self._look_at: float | None = None
        self._refused: set[str] = set()
        self._producer: Producer | None = None

    def due(self, signs: Signs, now: float) -> float | None:
        """As `headrace.maintenance.duty.Duty.due`."""
        if not self._schedules or signs.topology is None or signs.topology.deleting:
            return None
        return now if self._look_at is None else self._look_at

    async def run(self, turn: Turn, signs: Signs) -> None:
        """As `headrace.maintenance.duty.Duty.run`."""
        topology = signs.topology
        if topology is None:
            return
        producer = self._producer = self._producer or Producer(turn.store)
        began = turn.now()
        now_ms, marks, unreadable = await turn.step(partial(turn.store.read_schedules, turn.queue))
        waits = [LONGEST_WAIT]
        for schedule in self._schedules:
            try:
                if schedule.name in unreadable:
                    raise DataDamaged("schedules", f"holds what is no mark of {schedule.name!r}", turn.queue)
                waits.append(await self._look(turn, topology, producer, schedule, marks.get(schedule.name), now_ms))
            except _OF_ALL:
                raise
            except Exception as error:  # of this one alone: the others come when they are due
                self._fired(turn.queue, schedule.name, "failed", 1)
                self._say_once(schedule, f"failed: {type(error).__name__}: {error}")
                waits.append(REFUSED_SECONDS)
        self._look_at = began + max(0.0, min(waits))

    async def _look(
        self,
        turn: Turn,
        topology: Topology,
        producer: Producer,
        schedule: Schedule,
        mark: ScheduleMark | None,
        now_ms: int,
    ) -> float:
        """Do what is due of one schedule; seconds until the next look at it."""
        decision = decide(schedule, mark, now_ms)
        done = await self._fire(turn, producer, schedule, decision)
        refused = done < len(decision.fires)
        if refused and done == 0:
            return REFUSED_SECONDS
        # Of times that are made up for one by one, those that have their jobs are noted, and not looked at again.
        reached = decision.mark._replace(at=decision.fires[done - 1]) if refused else decision.mark
        if reached != mark:
            noting = partial(turn.store.note_schedule, turn.queue, turn.fence(topology), schedule.name, mark)
            if not await turn.step(partial(noting, reached)):
                return RACE_SECONDS
            self._tell(schedule, decision)
        if refused:
            return REFUSED_SECONDS
        return LONGEST_WAIT if decision.next_at is None else (decision.next_at - now_ms) / 1000 + MARGIN

    async def _fire(self, turn: Turn, producer: Producer, schedule: Schedule, decision: Decision) -> int:
        """Enqueue the jobs that are due, in order; how many the queue took."""
        for done, at in enumerate(decision.fires):
            spec = JobSpec(
                schedule.type,
                schedule.payload,
                id=schedule.id_at(at),
                max_retries=schedule.max_retries,
                timeout=schedule.timeout,
                headers=schedule.headers_at(at),
                priority=schedule.priority,
            )
            once = Once(schedule.name, at)
            try:
                placed = await turn.step(partial(producer.enqueue_once, turn.queue, spec, once))
            except (QueueHeld, QueueFull) as error:
                self._say_once(schedule, f"waits: {error}")
                return done
            self._fired(turn.queue, schedule.name, "existing" if placed.existing else "enqueued", 1)
        self._refused.discard(schedule.name)
        return len(decision.fires)

    def _say_once(self, schedule: Schedule, problem: str) -> None:
        """Tell what keeps a schedule back, unless that has been told since its jobs were last taken."""
        if schedule.name not in self._refused:
            self._refused.add(schedule.name)
            log.warning(
                "schedule %s of queue %s is tried again every 30 s; it %s", schedule.name, schedule.queue, problem
            )

    def _tell(self, schedule: Schedule, decision: Decision) -> None:
        if decision.missed:
            self._fired(schedule.queue, schedule.name, "missed", decision.missed)
            log.warning(
                "schedule %s of queue %s: %d time(s) were missed and get no job (catch_up %s)",
                schedule.name,
                schedule.queue,
                decision.missed,
                schedule.catch_up,
            )
