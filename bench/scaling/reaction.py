"""From a backlog on an idle queue without workers to the first job that runs, for whoever scales."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from bench.report import Sample
from bench.scaling.pods import LOADED, RAN
from bench.scaling.stage import Stage
from headrace.producer import JobSpec
from headrace.sync_producer import SyncProducer

BACKLOG = 10
LOOK_SECONDS = 0.01
POD_SECONDS = 120.0


@dataclass(frozen=True)
class Contender:
    """A Deployment that somebody scales. ``name``: of its queue or list; ``put`` puts a number of jobs in there.

    ``poll``: seconds between two looks of whoever scales it, 0 if that waits for no poll.
    """

    deployment: str
    name: str
    put: Callable[[int], object]
    poll: float


def ours(stage: Stage, producer: SyncProducer, name: str) -> Contender:
    """A Queue whose workers our operator scales; all settings but the last one are the defaults."""
    # Only the way back to zero depends on it.
    queue = stage.queue(name, app="bench.scaling.our_pod:app", concurrency=16, scaling={"idleSeconds": 0})
    return Contender(f"{name}-workers", queue, _enqueues(producer, queue), 0.0)


def listed(stage: Stage, name: str, poll: int) -> Contender:
    """A list, the Pods that take from it, and KEDA's Redis list scaler with its default length of 5."""
    stage.list_workers(name)
    address = stage.url.removeprefix("redis://").partition("/")[0]
    metadata = {"address": address, "listName": name, "listLength": "5"}
    stage.scaled_object(name, {"type": "redis", "metadata": metadata}, poll)
    return Contender(name, name, lambda jobs: stage.client.rpush(name, *map(str, range(jobs))), poll)


def pushed(stage: Stage, producer: SyncProducer, name: str, poll: int) -> Contender:
    """A Queue whose workers KEDA scales by our external scaler."""
    queue = stage.queue(name, app="bench.scaling.our_pod:app", concurrency=16, scaling={"mode": "Disabled"})
    metadata = {"scalerAddress": stage.scaler_address, "queue": queue, "slots": "16"}
    stage.scaled_object(f"{name}-workers", {"type": "external-push", "metadata": metadata}, poll)
    return Contender(f"{name}-workers", queue, _enqueues(producer, queue), poll)


def _enqueues(producer: SyncProducer, queue: str) -> Callable[[int], object]:
    return lambda jobs: producer.enqueue_many(queue, [JobSpec("stamp")] * jobs)


def react(stage: Stage, contender: Contender, phase: float) -> dict[str, Sample]:
    """Wait until there is no worker, let the backlog appear, and take the times.

    ``phase`` (0..1): when within a poll it appears.
    """
    stage.wait(lambda: stage.replicas(contender.deployment) == 0, f"no replicas of {contender.deployment}")
    stage.wait(lambda: not stage.pods(contender.deployment), f"no Pod of {contender.deployment}")
    stage.client.delete(LOADED + contender.name, RAN + contender.name)
    if contender.poll:
        stage.look_now(contender.deployment)
        time.sleep(phase * contender.poll)

    begun = time.monotonic()
    contender.put(BACKLOG)
    while not stage.replicas(contender.deployment):
        if time.monotonic() - begun > contender.poll + POD_SECONDS:
            raise TimeoutError(f"{contender.deployment}: no worker was asked for")
        time.sleep(LOOK_SECONDS)
    patched = time.monotonic()
    loaded = _first(stage, LOADED + contender.name)
    ran = _first(stage, RAN + contender.name)
    stage.wait(lambda: int(stage.client.llen(RAN + contender.name)) == BACKLOG - 1, "all jobs of the backlog")
    values = {
        "to replicas patched": patched - begun,
        "to first job": ran - begun,
        "of that, start of the Pod": loaded - patched,
        "to first job, without that": ran - begun - (loaded - patched),
    }
    return {name: Sample(value=value, jobs=BACKLOG) for name, value in values.items()}


def _first(stage: Stage, key: str) -> float:
    """Take the first time out of a list, which may have to come yet."""
    return float(str(stage.wait(lambda: stage.client.lpop(key), f"a time in {key}", POD_SECONDS)))
