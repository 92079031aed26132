"""Kubernetes Events about Queues, each told once while it stays true."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Callable
from datetime import UTC, datetime

from headrace_operator.api.names import GROUP_VERSION, OPERATOR, QUEUE_KIND
from headrace_operator.kubernetes.client import ApiError, ApiUnavailable, Body, Kube, NotLeading, core
from headrace_operator.kubernetes.pace import Priority
from headrace_operator.metrics import OperatorMetrics
from headrace_operator.observed import QueueObject
from headrace_operator.reasons import Event

QUIET_SECONDS = 600.0
"""The same event is told again, with its count raised, after this time at the earliest."""
_LONGEST_MESSAGE = 1024
_REMEMBERED = 4096
_WAITING = 1000
"""Events that wait to be written at most; more are dropped, and counted."""
_REFUSED = (400, 403, 422)
"""Trying again does not help: a namespace that is being deleted takes no new Events."""

log = logging.getLogger("headrace.operator.events")


class Recorder:
    """Writes Events, one after the other and beside everything else: no Queue waits for what is only told.

    ``clock``: monotonic seconds. A failure is logged, never raised: an Event decides nothing.
    """

    def __init__(self, kube: Kube, clock: Callable[[], float], metrics: OperatorMetrics | None = None) -> None:
        self._kube = kube
        self._clock = clock
        self._metrics = metrics or OperatorMetrics()
        self._told: dict[str, tuple[float, int]] = {}
        self._waiting: dict[str, tuple[QueueObject, Event]] = {}
        self._came = asyncio.Event()

    def tell(self, queue: QueueObject, event: Event) -> None:
        """Have ``event`` written about ``queue``, unless the same was written a short time ago."""
        identity = "\n".join((queue.uid, event.type, event.reason, event.message))
        name = f"{queue.name}.{hashlib.sha256(identity.encode()).hexdigest()[:16]}"
        last, _ = self._told.get(name, (float("-inf"), 0))
        if self._clock() - last < QUIET_SECONDS or name in self._waiting:
            return
        log.info("%s/%s: %s: %s", queue.namespace, queue.name, event.reason, event.message)
        if len(self._waiting) >= _WAITING:
            self._metrics.told(event.type, written=False)
            return
        self._waiting[name] = (queue, event)
        self._came.set()

    async def run(self) -> None:
        """Write until cancelled."""
        while True:
            self._came.clear()
            await self.flush()
            await self._came.wait()

    async def flush(self) -> None:
        """Write what waits now."""
        for name, (queue, event) in list(self._waiting.items()):
            try:
                await self._write(name, queue, event)
            finally:
                self._waiting.pop(name, None)

    async def _write(self, name: str, queue: QueueObject, event: Event) -> None:
        _, count = self._told.get(name, (float("-inf"), 0))
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        path = core("events", queue.namespace)
        try:
            try:
                body = _body(queue, event, name, now)
                await self._kube.create(path, body, manager=OPERATOR, priority=Priority.LOW)
            except ApiError as error:
                if error.status != 409:
                    raise
                # Of an earlier process the count is not known: only the time is.
                again = {"lastTimestamp": now} | ({"count": count + 1} if count else {})
                await self._kube.merge(f"{path}/{name}", again, manager=OPERATOR, priority=Priority.LOW)
            self._metrics.told(event.type, written=True)
        except (ApiError, ApiUnavailable, NotLeading) as error:
            self._metrics.told(event.type, written=False)
            log.warning(
                "%s/%s: the event %s could not be written: %s", queue.namespace, queue.name, event.reason, error
            )
            if not isinstance(error, ApiError) or error.status not in _REFUSED:
                return  # nobody could read it, so it has not been told: the next pass tries again
        if len(self._told) >= _REMEMBERED:
            self._told.pop(next(iter(self._told)))
        self._told[name] = (self._clock(), count + 1)


def _body(queue: QueueObject, event: Event, name: str, now: str) -> Body:
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": queue.namespace},
        "involvedObject": {
            "apiVersion": GROUP_VERSION,
            "kind": QUEUE_KIND,
            "namespace": queue.namespace,
            "name": queue.name,
            "uid": queue.uid,
            "resourceVersion": queue.resource_version,
        },
        "type": event.type,
        "reason": event.reason,
        "message": event.message[:_LONGEST_MESSAGE],
        "source": {"component": OPERATOR},
        "reportingComponent": OPERATOR,
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }
