"""The queues' live settings as this worker knows them: read from the store at the start and at least every 5 s."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from headrace.errors import TopologyUnreadable
from headrace.handler import Handler
from headrace.job import Job
from headrace.retry import RetryBy, RetryPolicy
from headrace.settings import QueueSettings
from headrace.stores.base import Store
from headrace.topology import Topology
from headrace.worker.repeats import Repeats
from headrace.worker.settings import WorkerSettings

log = logging.getLogger("headrace.worker")


class Policies:
    """Answers what holds for a job: its own value > the queue's > the handler's > the worker's."""

    def __init__(self, settings: WorkerSettings, clock: Callable[[], float] = time.monotonic) -> None:
        self._settings = settings
        self._queues: dict[str, QueueSettings] = {}
        self._incarnations: dict[str, int] = {}
        self._problems = Repeats(clock=clock)
        self._no_settings = QueueSettings()

    async def refresh(self, store: Store, queue: str) -> Topology | None:
        """Read the topology of a queue; None if there is none that can be read, which is said once per minute."""
        try:
            topology = await store.read_topology(queue)
        except TopologyUnreadable as error:
            # Jobs go on with the settings as they were: the partitions themselves enforce what must not be exceeded.
            if self._problems.tells(queue):
                log.error("%s; going on with the settings that are known", error)
            return None
        if topology is not None:
            self._queues[queue] = topology.settings
            self._incarnations[queue] = topology.incarnation
            self._problems.over(queue)
        elif self._problems.tells(queue):
            if queue in self._queues:  # deleted, or the server came back without its data
                log.warning("queue %s is gone from the store; waiting for a version of it to be promoted", queue)
                return None
            log.warning("queue %s does not exist yet; waiting for its first version to be promoted", queue)
        return topology

    def of(self, queue: str) -> QueueSettings:
        """Return the queue's settings, empty as long as they are not known."""
        return self._queues.get(queue, self._no_settings)

    def exclusive(self, queue: str) -> bool:
        """Return whether only the leader of the queue runs its jobs, as far as is known."""
        return self.of(queue).mode == "leader_only"

    def incarnation(self, queue: str) -> int:
        """Return which one of the queues of this name is meant."""
        return self._incarnations.get(queue, 1)

    def lease_ms(self, queue: str) -> int:
        """Return the lease of a job of this queue."""
        return self.of(queue).lease_ms or self._settings.lease_ms

    def timeout_ms(self, queue: QueueSettings, job: Job, handler: Handler) -> int:
        """Return the longest run of a job."""
        return job.timeout_ms or queue.timeout_ms or handler.timeout_ms or self._settings.timeout_ms

    def retry(self, job: Job, handler: Handler) -> RetryPolicy | RetryBy:
        """Return what decides about the retries of a job (its own number of retries is applied by the decision).

        A handler's function wins over the queue's policy: it knows the error, and an operator gives every queue one.
        """
        policy = job.retry or self.of(job.queue).retry_or(handler.retry or self._settings.retry)
        if handler.retry_by is None or job.retry is not None:
            return policy
        return RetryBy(handler.retry_by, policy)
