"""One pass over one Queue: observe, plan, apply, until nothing is left to do; then the status."""

from __future__ import annotations

import logging
import random
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta

from headrace.errors import HeadraceError
from headrace.stores.base import Store
from headrace_operator.api.names import OPERATOR, QueueKey
from headrace_operator.api.queue_status import Drift
from headrace_operator.apply import Applier, Outdated, Refused
from headrace_operator.kubernetes.client import ApiError, Kube, queues
from headrace_operator.kubernetes.events import Recorder
from headrace_operator.kubernetes.pace import Priority
from headrace_operator.kubernetes.recent import Recent
from headrace_operator.memory import Memory, Quiet
from headrace_operator.metrics import OperatorMetrics
from headrace_operator.observe import Observer, Unchanged
from headrace_operator.observed import Observed, QueueObject
from headrace_operator.planning import Plan, plan
from headrace_operator.planning.leader import leader_event, leader_of
from headrace_operator.queue_gauges import gauges_of
from headrace_operator.reasons import ACTIONABLE, Event, Finding, Reason, normal, warning
from headrace_operator.redis.connection import Connections, is_of_connection, problem
from headrace_operator.scaling.target import Target, target_of
from headrace_operator.status import build_status, patch, to_write
from headrace_operator.steps import ApplyObject, Step

MAX_ROUNDS = 40
"""Plans that one pass may run; the longest way known takes about twenty."""
MAX_CONFLICTS = 5
"""Times that one pass looks again because somebody else was faster."""
FIRST_RETRY, LAST_RETRY = 1.0, 30.0
QUIET_SECONDS = 300.0
"""While everything stays as it was, a Queue is thought about again after this time only."""
UNHURRIED_MS = 30_000
MEASURED_SECONDS = 30.0
"""Measurements of one Queue are written at most this often."""
_DECISIONS = (Reason.AWAITING_PROMOTION, Reason.TOO_MANY_DRAINING)

log = logging.getLogger("headrace.operator")


async def go_on(_: Step) -> None:
    """Do nothing after a step."""


class Reconciler:
    """Brings one Queue at a time to what its spec says.

    ``resync_seconds``: when a Queue is looked at again although nothing happened. ``after_step``: called after every
    step that was done; what it raises ends the pass there. ``scale``: told at the end of a pass what is scaled by its
    load, None if nothing is.
    """

    def __init__(
        self,
        kube: Kube,
        connections: Connections,
        observer: Observer,
        applier: Applier,
        recorder: Recorder,
        memory: Memory,
        recent: Recent,
        *,
        clock: Callable[[], float],
        resync_seconds: float = 30.0,
        may_measure: Callable[[], bool] = lambda: True,
        after_step: Callable[[Step], Awaitable[None]] = go_on,
        scale: Callable[[QueueKey, Target | None], None] = lambda _, __: None,
        uniform: Callable[[float, float], float] = random.uniform,
        metrics: OperatorMetrics | None = None,
    ) -> None:
        self._kube = kube
        self._connections = connections
        self._observer = observer
        self._applier = applier
        self._recorder = recorder
        self._memory = memory
        self._recent = recent
        self._clock = clock
        self._resync_seconds = resync_seconds
        self._may_measure = may_measure
        self._after_step = after_step
        self._scale = scale
        self._uniform = uniform
        self._metrics = metrics or OperatorMetrics()
        self._uids: dict[QueueKey, str] = {}

    async def reconcile(self, key: QueueKey) -> float | None:
        """Do everything that can be done now. Returns the seconds until the next look, None if the Queue is gone.

        Raises ApiError and ApiUnavailable if the API server failed; the Queue is then to be looked at again.
        """
        conflicts, fresh = 0, False
        for _ in range(MAX_ROUNDS):
            if conflicts > MAX_CONFLICTS:
                log.info("%s: others write it all the time; goes on later", key)
                return self._retry_in(key)
            there = await self._observer.observe(key, fresh=fresh)
            if there is None:
                await self._forget(key)
                return None
            if isinstance(there, Unchanged):
                return self._resync_seconds * self._uniform(0.8, 1.0)
            seen, store = there
            await self._note(key, seen.queue)
            decision = plan(seen)
            # A loss is told before it is repaired: after a repair nothing shows it any more.
            if decision.data_loss and not await self._write_status(seen, decision, None):
                conflicts += 1  # somebody changed the object in between: look again, and tell it then
                continue
            if not decision.steps:
                return await self._settle(key, seen, store, decision, None)
            if not fresh and not all(step.harmless for step in decision.steps):
                fresh = True
                continue
            try:
                for step in decision.steps:
                    await self._applier.run(step, seen.queue, store)
                    log.info("%s: done: %s", key, _told(step), extra={"queue": str(key)})
                    self._metrics.stepped(type(step).__name__, drift=step.drift)
                    if step.drift:
                        self._memory.of(seen.queue.uid).drift = _drift(step, seen.now)
                    if step.event is not None:
                        self._recorder.tell(seen.queue, step.event)
                    await self._after_step(step)
                fresh = False  # what was read for this plan is as old as any other now
            except Outdated as outdated:
                conflicts += 1
                log.info("%s: looks again: %s", key, outdated)
            except Refused as refused:
                return await self._settle(key, seen, store, decision, refused.finding)
            except HeadraceError as error:
                if not is_of_connection(error):
                    found = Finding(Reason.STORE_REFUSED, f"a step was refused: {error}")
                    return await self._settle(key, seen, store, replace(decision, stalled=found), found)
                failed = problem(error)
                if store is not None:
                    self._connections.failed(store, failed)
                stalled = failed.finding if failed.stalled else None
                decision = replace(decision, connection=failed.finding, stalled=stalled)
                return await self._settle(key, seen, store, decision, None)
        log.warning("%s: still changing after %d plans; goes on later", key, MAX_ROUNDS)
        return self._retry_in(key)

    def failed(self, key: QueueKey) -> float:
        """Say that a pass raised. Returns the seconds until it should be tried again: 1 s to 30 s, with jitter."""
        return self._retry_in(key)

    async def _settle(
        self, key: QueueKey, seen: Observed, store: Store | None, decision: Plan, failure: Finding | None
    ) -> float:
        """Tell the scaler, write the status, tell events, and return the seconds until the next look."""
        self._scale(key, target_of(seen, store, decision))
        if decision.connection is not None or decision.doubt is not None:
            self._connections.doubt(seen.queue)
        else:
            self._connections.trust(seen.queue)
        written = await self._write_status(seen, decision, failure)
        for event in _events(decision, failure):
            self._recorder.tell(seen.queue, event)
        self._tell_leader(seen)
        if not written:
            return self._retry_in(key)  # somebody changed the object in between, and its event brings us back anyway
        if failure is not None and failure.reason is Reason.WAITING_FOR_DELETION:
            return 1.0
        if failure is not None or decision.connection is not None:
            return self._retry_in(key)
        memory = self._memory.of(seen.queue.uid)
        memory.failures, memory.quiet = 0, None
        if decision.look_ms is None or decision.look_ms >= UNHURRIED_MS:
            # Nothing of this is going to be otherwise because of the time alone.
            seconds = QUIET_SECONDS * self._uniform(0.8, 1.2)
            if seen.fingerprint is not None and memory.told_version == seen.queue.resource_version:
                memory.quiet = Quiet(*seen.fingerprint, seen.now + timedelta(seconds=seconds))
        resync = self._resync_seconds * self._uniform(0.8, 1.0)
        return resync if decision.look_ms is None else min(resync, decision.look_ms / 1000)

    def _tell_leader(self, seen: Observed) -> None:
        memory, leader, now = self._memory.of(seen.queue.uid), leader_of(seen), self._clock()
        event = leader_event(memory.leader or seen.queue.status.leader, leader, now - memory.leader_told_at)
        if leader is None or event is None:
            return
        memory.leader, memory.leader_told_at = leader, now
        self._metrics.leader_changed(leader.backend)
        self._recorder.tell(seen.queue, event)

    async def _write_status(self, seen: Observed, decision: Plan, failure: Finding | None) -> bool:
        """Write the status if it has to be; False if the object was changed or removed meanwhile."""
        queue, memory = seen.queue, self._memory.of(seen.queue.uid)
        status = build_status(seen, decision, failure)
        self._metrics.show(QueueKey(queue.namespace, queue.name), gauges_of(queue.queue_name, status))
        derived = to_write(queue.status, status, measured_due=False)
        due = self._clock() - memory.measured_at >= MEASURED_SECONDS
        measured = to_write(queue.status, status, measured_due=True)
        memory.told_version = "" if measured else queue.resource_version
        if not derived and not (due and measured and self._may_measure()):
            return True
        priority = Priority.NORMAL if derived else Priority.LOW
        body = {"metadata": {"resourceVersion": queue.resource_version}, "status": patch(queue.status, status)}
        path = f"{queues(queue.namespace)}/{queue.name}/status"
        try:
            self._recent.keep_queue(await self._kube.merge(path, body, manager=OPERATOR, priority=priority))
        except ApiError as error:
            if error.status in (404, 409):
                self._recent.mistrust(QueueKey(queue.namespace, queue.name))
                return False
            raise
        memory.measured_at = self._clock()
        return True

    async def _note(self, key: QueueKey, queue: QueueObject) -> None:
        before = self._uids.get(key)
        if before is not None and before != queue.uid:
            self._memory.forget(before)
            await self._connections.release(before)
        self._uids[key] = queue.uid

    async def _forget(self, key: QueueKey) -> None:
        self._scale(key, None)
        self._metrics.hide(key)
        uid = self._uids.pop(key, None)
        self._recent.forget(key)
        if uid is not None:
            self._memory.forget(uid)
            await self._connections.release(uid)

    def _retry_in(self, key: QueueKey) -> float:
        uid = self._uids.get(key)
        if uid is None:
            return FIRST_RETRY
        memory = self._memory.of(uid)
        delay = min(LAST_RETRY, FIRST_RETRY * 2.0 ** min(memory.failures, 10))
        memory.failures += 1
        return float(delay * self._uniform(0.75, 1.0))


def _events(decision: Plan, failure: Finding | None) -> Iterator[Event]:
    """Yield what is worth an Event among the findings of a pass."""
    draining = decision.draining
    if draining is not None and draining.reason is Reason.JOBS_PARKED:
        draining = None  # told by what is parked
    findings = (
        *(decision.stalled, decision.connection, decision.doubt, failure, decision.topology, decision.workers),
        *(draining, decision.parked, decision.advice, decision.unscaled, decision.unsafe),
        *(None if told is None else told[1] for told in (decision.led,)),
        None if decision.health is None else decision.health.finding,
    )
    for finding in dict.fromkeys(finding for finding in findings if finding is not None):
        if finding.reason in _DECISIONS:
            yield normal(finding.reason, finding.message)
        elif finding.reason in ACTIONABLE:
            yield warning(finding.reason, finding.message)


def _drift(step: Step, now: datetime) -> Drift:
    """Return what the status tells of a step that put right what somebody else had changed."""
    if step.event is not None:
        what = step.event.message
    elif isinstance(step, ApplyObject):
        what = f"{step.kind} {step.body['metadata']['name']} was edited by somebody else; it is applied again"
    else:
        what = _told(step)
    return Drift(at=now.replace(microsecond=0), what=what[:1024])


def _told(step: Step) -> str:
    version = getattr(step, "version", None)
    return type(step).__name__ + (f" v{version}" if version is not None else "")
