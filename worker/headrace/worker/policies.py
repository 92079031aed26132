"""The queues' live settings as this worker knows them: read from the store at the start and at least every 5 s."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from headrace.app import Handler
from headrace.job import Job
from headrace.retry import RetryPolicy
from headrace.settings import QueueSettings
from headrace.stores.base import Store
from headrace.topology import Topology
from headrace.worker.settings import WorkerSettings

log = logging.getLogger("headrace.worker")

MISSING_LOG_INTERVAL = 60.0


class Policies:
    """Answers what holds for a job: its own value > the queue's > the handler's > the worker's."""

    def __init__(self, settings: WorkerSettings, clock: Callable[[], float] = time.monotonic) -> None:
        self._settings = settings
        self._clock = clock
        self._queues: dict[str, QueueSettings] = {}
        self._missing_logged: dict[str, float] = {}
        self._no_settings = QueueSettings()

    async def refresh(self, store: Store, queue: str) -> Topology | None:
        """Read the topology of a queue; says once per minute that a queue does not exist yet."""
        topology = await store.read_topology(queue)
        if topology is not None:
            self._queues[queue] = topology.settings
            self._missing_logged.pop(queue, None)
        elif self._clock() - self._missing_logged.get(queue, float("-inf")) >= MISSING_LOG_INTERVAL:
            self._missing_logged[queue] = self._clock()
            log.warning("queue %s does not exist yet; waiting for its first version to be promoted", queue)
        return topology

    def of(self, queue: str) -> QueueSettings:
        """Return the queue's settings, empty as long as they are not known."""
        return self._queues.get(queue, self._no_settings)

    def lease_ms(self, queue: str) -> int:
        """Return the lease of a job of this queue."""
        return self.of(queue).lease_ms or self._settings.lease_ms

    def timeout_ms(self, queue: QueueSettings, job: Job, handler: Handler) -> int:
        """Return the longest run of a job."""
        return job.timeout_ms or queue.timeout_ms or handler.timeout_ms or self._settings.timeout_ms

    def retry(self, job: Job, handler: Handler) -> RetryPolicy:
        """Return the retry policy of a job (its own number of retries is applied by the decision)."""
        return self.of(job.queue).retry_or(handler.retry or self._settings.retry)
