"""One look at one queue: measure, decide, act. What it remembers between looks may be lost at any time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import NamedTuple

from headrace.errors import HeadraceError
from headrace.stores.base import Statistics, Store, WorkerEntry
from headrace_operator.kubernetes.client import ApiError
from headrace_operator.kubernetes.events import Recorder
from headrace_operator.reasons import Reason, normal
from headrace_operator.scaling.estimates import COLD_STARTS, cold_start
from headrace_operator.scaling.inputs import Inputs, Load, Pods
from headrace_operator.scaling.load import measured, next_due_ms
from headrace_operator.scaling.pods import (
    RETIRE_SECONDS,
    heard_of,
    new_starts,
    processes_of,
    silent_pods,
    started_before,
    workers_of,
)
from headrace_operator.scaling.policy import Decision, decide
from headrace_operator.scaling.reading import statistics
from headrace_operator.scaling.record import Record
from headrace_operator.scaling.replicas import Replicas, deletion_costs, known_workers, taken_first
from headrace_operator.scaling.sleep import fall_asleep
from headrace_operator.scaling.target import Target
from headrace_operator.scaling.victims import leaving

LOOK_SECONDS = 2.0
"""Between two looks at a queue with workers."""
SWEEP_SECONDS = 10.0
"""Between two looks at one without, if nothing wakes it."""
FULL_SECONDS = 60.0
"""A sleeping queue is measured at least so often: where hints may be lost, they may say nothing."""
FRESH_MS = 1_500
"""Statistics that are younger are taken as they are; older ones are measured anew, by whoever needs them first."""
FOREIGN_SECONDS = 4.0
"""Between two readings of a Deployment that is only scaled."""
LISTED_SECONDS = 30.0
"""Between two readings of the registry, which forgets after a minute, so that whoever was ever in it is known."""
REDIS_SECONDS = 5.0
KEEP_SECONDS = 10.0
"""Between two writes of what is remembered, unless something was decided."""
AT_ONCE = 0.05
FIGHT_SECONDS, FIGHT_PAUSE = 300.0, 30.0
"""Replicas that somebody else has written over twice within the one time are written once in the other."""

log = logging.getLogger("headrace.operator.scaling")


@dataclass(slots=True)
class ScalingMemory:
    """What one process knows of one queue. All times but ``scaled_at`` are the clock's.

    ``record`` None: not read from Redis yet; ``kept_at``: when it was last written there;
    ``read_at``: when a Deployment that nobody watches was read. ``retired``: Pods of ``template`` that were
    told to take no more, with the time of then. ``heard``: Pods that have ever been in the registry of workers, and
    when they were heard of last, since the epoch; ``listed_at``: when it was read.
    ``starts``: uids of Pods whose start was measured or is not to be,
    ``ready``: how many were ready then. ``decision``: the last one; ``stepped_down``: why workers were last
    given up. ``scaled_at``, ``wrote_at``: when replicas were last written,
    ``wrote``: how many. ``overwritten``: when somebody else wrote over them; ``writer``: who does that again and again.
    ``load``: what was measured last; ``active_at``: when a worker was needed last, by the time of day.
    """

    record: Record | None = None
    kept_at: float = float("-inf")
    measured_at: float = float("-inf")
    read_at: float = float("-inf")
    failures: int = 0
    retired: dict[str, float] = field(default_factory=dict)
    heard: dict[str, float] = field(default_factory=dict)
    listed_at: float = float("-inf")
    template: str = ""
    starts: set[str] | None = None
    ready: int = 0
    decision: Decision | None = None
    stepped_down: str = ""
    scaled_at: datetime | None = None
    wrote: int | None = None
    wrote_at: float = float("-inf")
    overwritten: list[float] = field(default_factory=list)
    writer: str = ""
    load: Load | None = None
    active_at: datetime | None = None


class Looked(NamedTuple):
    """``target``: as it is now, None if its Deployment is gone. ``again``: seconds until the next look."""

    target: Target | None
    again: float


class Scaler:
    """Looks at queues. ``clock``: monotonic seconds; ``now``: time of day, in UTC."""

    def __init__(
        self, replicas: Replicas, recorder: Recorder, *, clock: Callable[[], float], now: Callable[[], datetime]
    ) -> None:
        self._replicas = replicas
        self._recorder = recorder
        self._clock = clock
        self._now = now

    async def look(self, target: Target, memory: ScalingMemory, *, woken: bool) -> Looked:
        """Look at a queue and set its replicas. ``woken``: there is a reason to; else a sleeping queue is glanced at.

        Raises ApiError and ApiUnavailable.
        """
        if target.foreign and self._clock() - memory.read_at >= FOREIGN_SECONDS:
            # Nobody watches it: passes see it once in a while only.
            found = await self._replicas.read(target.queue.namespace, target.deployment.name)
            if found is None:
                return Looked(None, AT_ONCE)
            target, memory.read_at = target.with_deployment(found), self._clock()
        try:
            async with asyncio.timeout(REDIS_SECONDS):
                asleep = target.replicas == 0 and not woken and memory.decision is not None
                if asleep and (again := await self._glance(target, memory)) is not None:
                    return Looked(target, again)
                stats = await self._statistics(target)
                memory.failures = 0
        except (HeadraceError, TimeoutError) as error:
            log.debug("%s: not measured: %s", target.queue.queue_name, error)
            stats = None
            memory.failures += 1
        return await self._decide_and_act(target, memory, stats)

    async def _glance(self, target: Target, memory: ScalingMemory) -> float | None:
        """Return when to look again at a sleeping queue; None if it has to be looked at now."""
        if target.store is None or memory.record is None or self._clock() - memory.measured_at > FULL_SECONDS:
            return None
        found = await target.store.glance(target.queue.queue_name)
        if found.ready:
            return None
        return _until_due(found.next_due_at, found.now, _lead(target, memory.record))

    async def _statistics(self, target: Target) -> Statistics | None:
        """Return figures that are young enough; None if there are none. Raises the errors of the store."""
        if target.store is None:
            raise TimeoutError("the Redis of the queue cannot be read")
        # Without workers nobody but us measures, and a job that has just woken the queue must be seen.
        return await statistics(target.store, target.queue.queue_name, FRESH_MS if target.replicas else -1)

    async def _decide_and_act(self, target: Target, memory: ScalingMemory, stats: Statistics | None) -> Looked:
        entries: Sequence[WorkerEntry] = ()
        due = target.replicas > 0 and self._clock() - memory.listed_at >= LISTED_SECONDS
        if stats is not None and target.store is not None and (target.foreign or memory.retired or due):
            entries = await self._listed(target.store, target, memory) or ()
        if memory.template != target.deployment.template:
            await self._forget_leaving(target, memory, entries)
        load = None
        if stats is not None:
            load = memory.load = await self._measure(target, memory, stats)
            if load.active:
                memory.active_at = self._now()
        record = memory.record or Record()
        taking = max(0, target.replicas - len(memory.retired))
        pods = Pods(
            taking,
            ready=min(target.ready, taking),
            pending=max(0, target.replicas - target.ready),
            slots=target.slots(entries),
            cold_start=cold_start(record.cold_starts),
            rolling_out=target.deployment.rolling_out,
        )
        rules = target.rules
        decision = decide(Inputs(rules, load, pods, record.history, memory.failures))
        before, memory.decision = memory.decision, decision
        if decision.replicas != taking:
            memory.stepped_down = decision.reason if decision.replicas < taking else ""
        if load is not None and decision.wanted is not None:
            history = record.history.noted(
                load.now_ms,
                wanted=decision.wanted,
                active=(load.held() if rules.held else load).active,
                stepped_down=decision.replicas < taking,
            )
            memory.record = replace(record, history=history)
        try:
            after = await self._act(target, memory, decision)
        except ApiError as error:
            if error.status not in (404, 409):
                raise
            # Somebody has changed the Deployment since it was seen: decide again from what it is now.
            memory.decision = before
            found = await self._replicas.read(target.queue.namespace, target.deployment.name)
            return Looked(None if found is None else target.with_deployment(found), AT_ONCE)
        if target.store is not None and stats is not None:
            await self._keep(target.store, target.queue.queue_name, memory, decided=after is not target)
        return Looked(after, self._again(after, memory, stats))

    async def _listed(self, store: Store, target: Target, memory: ScalingMemory) -> list[WorkerEntry] | None:
        """Return what the workers say, and remember who did; None if that cannot be read."""
        entries = await known_workers(store, target.queue.queue_name)
        if entries is not None:
            memory.heard = heard_of(memory.heard, entries, self._now().timestamp())
            memory.listed_at = self._clock()
        return entries

    async def _forget_leaving(self, target: Target, memory: ScalingMemory, entries: Sequence[WorkerEntry]) -> None:
        """Let those that were to leave take jobs again: that was decided for Pods that are being replaced now.

        Their successors were never told, so counting them as leaving would leave too few. A store that does not answer
        changes nothing about it: what they were told ends by itself.
        """
        if memory.retired and target.store is not None:
            await _tell(target.store, target.queue.queue_name, entries, (), memory.retired)
        memory.retired, memory.template = {}, target.deployment.template

    async def _measure(self, target: Target, memory: ScalingMemory, stats: Statistics) -> Load:
        record = Record.from_json(stats.scaling) if memory.record is None else memory.record
        template = target.deployment.template
        if target.ready > memory.ready or memory.starts is None:
            record = await self._note_starts(target, memory, record)
        if target.deployment.tried and record.tried != template:
            record = replace(record, tried=template)
        memory.ready, memory.measured_at = target.ready, self._clock()
        found = measured(stats, record, keep_warm=target.spec.scaling.keep_warm_seconds, template=template)
        memory.record = found.record
        return found.load

    async def _note_starts(self, target: Target, memory: ScalingMemory, record: Record) -> Record:
        """Measure how long the Pods took that have become ready since the last time."""
        if not target.replicas:
            memory.starts = memory.starts or set()
            return record
        pods = await self._replicas.pods(target.queue.namespace, target.deployment)
        memory.heard = {pod.name: memory.heard[pod.name] for pod in pods if pod.name in memory.heard}
        known, measured = memory.starts, bool(record.cold_starts)
        if known is None:
            known = started_before(pods, self._now().timestamp(), measured=measured)
        # Whoever is not ready now may have been: becoming ready again is no start.
        ready = {pod.uid for pod in pods if pod.ready_since is not None}
        memory.starts = (known | ready) & {pod.uid for pod in pods}
        starts = (*record.cold_starts, *new_starts(pods, known, measured=measured).values())
        return replace(record, cold_starts=starts[-COLD_STARTS:])

    async def _act(self, target: Target, memory: ScalingMemory, decision: Decision) -> Target:
        """Bring the workers that take jobs to the number decided; the target afterwards, the same one if unchanged."""
        taking = decision.replicas
        self._note_writer(target, memory)
        if memory.writer and taking != target.replicas and self._clock() - memory.wrote_at < FIGHT_PAUSE:
            return target
        if taking >= target.replicas and not memory.retired:
            return target if taking == target.replicas else await self._write(target, memory, taking, decision)
        namespace, now = target.queue.namespace, self._clock()
        if taking == 0 and await self._sleeps(target, memory):
            # Asleep means that nobody runs anything. The last one is not told to leave before: whoever enqueues
            # meanwhile is served by it, or wakes the queue.
            memory.retired.clear()
            memory.heard.clear()
            return await self._write(target, memory, 0, decision)
        taking = max(1, taking)
        pods = await self._replicas.pods(namespace, target.deployment)
        store, queue = target.store, target.queue.queue_name
        by_decree = target.replicas > target.spec.scaling.max_replicas
        listed = None if store is None else await self._listed(store, target, memory)
        if listed is None and not by_decree:
            # Whoever is not heard may hold jobs, and cannot be told anything.
            return target if taking <= target.replicas else await self._write(target, memory, taking, decision)
        entries = listed or []
        # An order that is there no more, as after a failover, is given anew: what was said of it may be over.
        free = {entry.beat.pod for entry in entries if entry.stop_ms is None and not entry.gone}
        memory.retired = {
            pod.name: now if pod.name in free else memory.retired[pod.name]
            for pod in pods
            if pod.name in memory.retired
        }
        memory.heard = {pod.name: memory.heard[pod.name] for pod in pods if pod.name in memory.heard}
        workers = workers_of(pods, entries, memory.retired, now, silent_pods(pods, memory.heard))
        left = leaving(workers, taking)
        stopping = left.retired if by_decree else left.stopped
        if store is not None and not by_decree:
            if not await _tell(store, queue, entries, left.retired, memory.retired):
                return target  # nobody is stopped who was not told
            memory.retired = {name: memory.retired.get(name, now) for name in left.retired}
        replicas = max(taking, len(pods) - len(stopping))
        if taking <= target.replicas:
            replicas = min(replicas, target.replicas)
        if replicas == target.replicas:
            return target
        if replicas < target.replicas:
            if not by_decree and not taken_first(pods, workers, stopping):
                return target  # one that is not ready but holds jobs would go in place of an idle one
            await self._replicas.prefer(namespace, pods, deletion_costs(workers, stopping))
        after = await self._write(target, memory, replicas, decision)
        memory.retired = {name: at for name, at in memory.retired.items() if name not in stopping}
        return after

    def _note_writer(self, target: Target, memory: ScalingMemory) -> None:
        """Take note of somebody else who writes over the replicas that were written here."""
        now = self._clock()
        memory.overwritten = [at for at in memory.overwritten if now - at < FIGHT_SECONDS]
        if memory.wrote is not None and target.replicas != memory.wrote:
            if target.deployment.writer:
                memory.overwritten.append(now)
                memory.writer = target.deployment.writer
            memory.wrote = None
        if len(memory.overwritten) < 2:
            memory.writer = ""

    async def _sleeps(self, target: Target, memory: ScalingMemory) -> bool:
        if target.store is None:
            return False
        try:
            return await fall_asleep(target.store, target.queue.queue_name, _lead(target, memory.record or Record()))
        except HeadraceError as error:
            log.warning("%s: not put to sleep: %s", target.queue.queue_name, error)
            return False

    async def _write(self, target: Target, memory: ScalingMemory, replicas: int, decision: Decision) -> Target:
        after = await self._replicas.write(target.queue.namespace, target.deployment, replicas)
        memory.scaled_at = self._now().replace(microsecond=0)
        memory.wrote, memory.wrote_at = replicas, self._clock()
        # Workers that were told to leave are stopped some looks after it was decided.
        why = memory.stepped_down if replicas < target.replicas and memory.stepped_down else decision.reason
        text = f"{target.deployment.name}: {target.replicas} -> {replicas} replicas ({why})"
        log.info("%s/%s: %s", target.queue.namespace, target.queue.name, text)
        self._recorder.tell(target.queue, normal(Reason.SCALED, text))
        return target.with_deployment(after)

    async def _keep(self, store: Store, queue: str, memory: ScalingMemory, *, decided: bool) -> None:
        now = self._clock()
        if memory.record is None or (not decided and now - memory.kept_at < KEEP_SECONDS):
            return
        try:
            await store.write_scaling(queue, memory.record.to_json().encode())
            memory.kept_at = now
        except HeadraceError as error:
            log.debug("%s: what scaling remembers was not stored: %s", queue, error)

    def _again(self, target: Target, memory: ScalingMemory, stats: Statistics | None) -> float:
        if target.replicas or stats is None:
            return LOOK_SECONDS
        return _until_due(next_due_ms(stats), stats.now, _lead(target, memory.record or Record())) or AT_ONCE


async def _tell(
    store: Store, queue: str, entries: Sequence[WorkerEntry], retired: Sequence[str], before: dict[str, float]
) -> bool:
    """Tell Pods that leave to take no more jobs, and those that are to stay after all to take some again.

    False if the store did not answer: the next look tells them again.
    """
    back = [name for name in before if name not in retired]
    try:
        if leave := processes_of(entries, retired):
            await store.stop_claiming(queue, leave, round(RETIRE_SECONDS * 1000))
        if stay := processes_of(entries, back):
            await store.stop_claiming(queue, stay, 0)
    except HeadraceError as error:
        log.warning("%s: workers were not told to take no more, or more again: %s", queue, error)
        return False
    return True


def _lead(target: Target, record: Record) -> float:
    """Return how many seconds before a delayed job is due somebody has to be there, or begin to start."""
    return max(cold_start(record.cold_starts), target.spec.scaling.keep_warm_seconds)


def _until_due(due_ms: int | None, now_ms: int, lead: float) -> float | None:
    """Return in how many seconds a sleeping queue has to be looked at; None: now."""
    if due_ms is None:
        return SWEEP_SECONDS
    seconds = (due_ms - now_ms) / 1000 - lead
    return None if seconds <= 0 else min(SWEEP_SECONDS, seconds)
