"""The workers of a Queue as they come and go, seen from outside, and jobs that keep them busy."""

from __future__ import annotations

import threading
from collections.abc import Callable

from headrace.producer import JobSpec
from headrace.stores.base import WorkerEntry
from headrace.sync_producer import SyncProducer
from tests.cluster.cluster import LocalCluster
from tests.cluster.operator import jobs
from tests.cluster.operator.queues import APPS, Queues
from tests.cluster.rest import Object
from tests.services.redis import RedisServer


class Fleet:
    """The workers of a Queue ``mail``, as seen from outside."""

    def __init__(self, cluster: LocalCluster, queues: Queues, redis: RedisServer) -> None:
        self.cluster = cluster
        self.queues = queues
        self.url = redis.url
        self.queue = queues.queue_name("mail")
        self.deployment = "mail-workers"

    def replicas(self) -> int:
        found = self.cluster.get(APPS, "Deployment", self.deployment, self.queues.namespace)
        return int(found["spec"]["replicas"]) if found is not None else -1

    def pods(self) -> dict[str, Object]:
        """Worker Pods that are not stopping, by name."""
        found = self.cluster.objects("v1", "Pod", self.queues.namespace)
        return {pod["metadata"]["name"]: pod for pod in found if "deletionTimestamp" not in pod["metadata"]}

    def every_pod(self) -> list[Object]:
        """Worker Pods, also those that are stopping: their jobs go on until they are told to end."""
        return self.cluster.objects("v1", "Pod", self.queues.namespace)

    def wait(self, what: Callable[[], object], text: str, deadline: float = 120) -> None:
        self.cluster.wait_for(what, deadline, what=text)

    def wait_replicas(self, number: int, deadline: float = 120) -> None:
        self.wait(lambda: self.replicas() == number, f"{number} replicas", deadline)

    def put(self, *names: str, kind: str = "count", delay: float | None = None) -> None:
        with SyncProducer(self.url) as producer:
            producer.enqueue_many(self.queue, [JobSpec(kind, None, id=name, delay=delay) for name in names])

    def runs(self) -> dict[str, int]:
        return jobs.runs(self.url, self.queue)

    def wait_each_once(self, *names: str, version: int = 1, deadline: float = 180) -> None:
        """Wait until each of these jobs has run, and no other. Fails at once if one has run twice."""
        missing: set[str] = set()

        def all_have() -> bool:
            ran = self.runs()
            assert set(ran.values()) <= {1}, f"ran again: { ({name: runs for name, runs in ran.items() if runs > 1}) }"
            missing.clear()
            missing.update({f"{name}@v{version}" for name in names} ^ ran.keys())
            return not missing

        try:
            self.wait(all_have, "every job, once", deadline)
        except TimeoutError as error:
            error.add_note(f"did not run, or should not have: {sorted(missing)}; workers: {self.entries()}")
            raise

    def entries(self) -> list[WorkerEntry]:
        return jobs.on_store(self.url, lambda store: store.workers(self.queue))

    def holders(self) -> dict[str, int]:
        """Jobs in flight by Pod, as the workers say."""
        return {entry.beat.pod: entry.beat.in_flight for entry in self.entries()}

    def messages(self, reason: str = "Scaled") -> list[str]:
        found = self.cluster.objects("v1", "Event", self.queues.namespace)
        return [event["message"] for event in found if event["reason"] == reason]


class Stream:
    """Jobs of a third of a second, four in each second, for as long as the block lasts: two slots are busy."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._send)
        self.sent = 0

    def names(self) -> list[str]:
        return [f"nap-{number}" for number in range(self.sent)]

    def _send(self) -> None:
        with SyncProducer(self._fleet.url) as producer:
            while not self._ended.wait(0.25):
                producer.enqueue_many(self._fleet.queue, [JobSpec("nap", None, id=f"nap-{self.sent}")])
                self.sent += 1

    def __enter__(self) -> Stream:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
