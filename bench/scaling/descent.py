"""Scaling Pods down while they work: what becomes of the jobs that they run."""

from __future__ import annotations

import random
import threading
import time
from dataclasses import dataclass, field

from bench.report import Sample
from bench.scaling.pods import BURNED, ENDS, STARTS
from bench.scaling.stage import Stage
from headrace.producer import JobSpec
from headrace.sync_producer import SyncProducer

SLOTS = 4
LONG_SHARE, LONG_SECONDS = 0.05, 6.0
"""Some jobs take longer than a Pod that is stopped at once gives them."""
SHORT_SECONDS = (0.2, 0.8)
FULL_RATE, LOW_RATE = 2.5, 1.0
"""Jobs per second: for each Pod before the way down, in all on it."""
STARTED = 10
"""Jobs that have begun, for each Pod, before the way down."""
PATIENCE = 600.0


@dataclass
class Load:
    """Enqueues jobs steadily until it is ended. ``rate``: jobs per second, may be changed."""

    producer: SyncProducer
    queue: str
    rate: float
    seed: int
    jobs: int = 0
    _ended: threading.Event = field(default_factory=threading.Event)
    _failed: BaseException | None = None

    def __enter__(self) -> Load:
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        if self._failed is not None:
            raise self._failed

    def _run(self) -> None:
        draw = random.Random(self.seed)
        try:
            while not self._ended.wait(1 / self.rate):
                seconds = LONG_SECONDS if draw.random() < LONG_SHARE else draw.uniform(*SHORT_SECONDS)
                self.producer.enqueue_many(self.queue, [JobSpec("count", seconds)])
                self.jobs += 1
        except BaseException as error:
            self._failed = error


class Descent:
    """A Queue whose workers go from ``pods`` Pods to one, again and again, under load."""

    def __init__(self, stage: Stage, producer: SyncProducer, name: str, pods: int) -> None:
        self._stage = stage
        self._producer = producer
        self._name = name
        self._pods = pods
        bounds = {"minReplicas": 0, "maxReplicas": pods}
        self.queue = stage.queue(name, app="bench.scaling.our_pod:app", concurrency=SLOTS, scaling=bounds)

    def run(self, seed: int, *, by_decree: bool) -> dict[str, Sample]:
        """Go down once: as the load asks for it, or at once because ``maxReplicas`` was lowered, at full load."""
        stage, name = self._stage, self._name
        stage.client.delete(STARTS + self.queue, ENDS + self.queue, BURNED + self.queue)
        stage.scaling(name, minReplicas=self._pods, maxReplicas=self._pods)
        stage.wait(lambda: self._ready() == self._pods, f"{self._pods} workers of {name}", PATIENCE)
        with Load(self._producer, self.queue, FULL_RATE * self._pods, seed) as load:
            wanted = STARTED * self._pods
            stage.wait(lambda: self._count(STARTS) >= wanted, f"{wanted} jobs of {name} to begin", PATIENCE)
            if not by_decree:
                load.rate = LOW_RATE  # else the load would want them
            begun = time.monotonic()
            stage.scaling(name, minReplicas=1, maxReplicas=1 if by_decree else self._pods)
            stage.wait(lambda: stage.replicas(f"{name}-workers") == 1, f"one replica of {name}", PATIENCE)
            load.rate = LOW_RATE
            stage.wait(lambda: len(stage.pods(f"{name}-workers")) == 1, f"one Pod of {name}", PATIENCE)
            seconds = time.monotonic() - begun
        stage.wait(lambda: self._count(ENDS) >= load.jobs, "all jobs", PATIENCE)
        starts, ends = self._values(STARTS), self._values(ENDS)
        values = {
            "attempts burned": sum(self._values(BURNED)),
            "jobs done twice": sum(number - 1 for number in ends),
            "jobs lost": load.jobs - len(ends),
            "runs broken off": sum(starts) - sum(ends),
        }
        return {what: Sample(value=value, jobs=load.jobs, seconds=seconds) for what, value in values.items()}

    def _ready(self) -> int:
        return sum(
            condition["status"] == "True"
            for pod in self._stage.pods(f"{self._name}-workers")
            for condition in pod.get("status", {}).get("conditions", ())
            if condition["type"] == "Ready" and "deletionTimestamp" not in pod["metadata"]
        )

    def _count(self, kind: str) -> int:
        return int(self._stage.client.hlen(kind + self.queue))

    def _values(self, kind: str) -> list[int]:
        return [int(value) for value in self._stage.client.hvals(kind + self.queue)]
