"""Enqueues the jobs of schedules when they are due, and notes how far it is.

A job is enqueued first, under an id that everybody makes alike and in a step that no partition applies twice; then it
is noted under the fence. A leader that dies in between is repeated by the next one, which changes nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Literal

from headrace.errors import QueueFull, QueueHeld
from headrace.job_spec import JobSpec
from headrace.maintenance.signs import Signs
from headrace.maintenance.turn import Turn
from headrace.producer import Producer
from headrace.schedules import Decision, Schedule, decide
from headrace.stores.base import Once

log = logging.getLogger("headrace.maintenance")

LONGEST_WAIT = 60.0
"""Seconds between two looks at the server's clock, which may be set."""
REFUSED_SECONDS = 30.0
"""Until the next try where the queue takes no jobs."""
RACE_SECONDS = 1.0
"""Until the next look where somebody else has noted something."""
MARGIN = 0.002
"""Seconds to wait beyond a time, for clocks that differ in a fraction of a millisecond."""

Fired = Callable[[str, str, Literal["enqueued", "existing", "missed"], int], None]
"""Told queue, schedule, what became of times, and of how many."""


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
        now_ms, marks = await turn.step(partial(turn.store.read_schedules, turn.queue))
        waits = [LONGEST_WAIT]
        for schedule in self._schedules:
            mark = marks.get(schedule.name)
            decision = decide(schedule, mark, now_ms)
            if not await self._fire(turn, producer, schedule, decision):
                waits.append(REFUSED_SECONDS)
                continue
            if decision.mark != mark:
                noting = partial(turn.store.note_schedule, turn.queue, turn.fence(topology), schedule.name, mark)
                if not await turn.step(partial(noting, decision.mark)):
                    waits.append(RACE_SECONDS)
                    continue
                self._tell(schedule, decision)
            if decision.next_at is not None:
                waits.append((decision.next_at - now_ms) / 1000 + MARGIN)
        self._look_at = began + max(0.0, min(waits))

    async def _fire(self, turn: Turn, producer: Producer, schedule: Schedule, decision: Decision) -> bool:
        """Enqueue the jobs that are due, in order; False if the queue takes none."""
        for at in decision.fires:
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
                if schedule.name not in self._refused:
                    self._refused.add(schedule.name)
                    log.warning("schedule %s waits, and is tried again every 30 s: %s", schedule.name, error)
                return False
            self._fired(turn.queue, schedule.name, "existing" if placed.existing else "enqueued", 1)
        self._refused.discard(schedule.name)
        return True

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
