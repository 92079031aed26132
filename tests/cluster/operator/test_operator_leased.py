"""Queues that are paused by hand, or deleted, while jobs are leased: what becomes of them, and that no key is left."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from headrace.pausing import resume_queue
from tests.cluster.operator import jobs
from tests.cluster.operator.queues import Queues, workers
from tests.services.redis import RedisServer

pytestmark = pytest.mark.usefixtures("operator")


@pytest.fixture(autouse=True)
def connection(queues: Queues, redis: RedisServer) -> None:
    queues.secret(redis.url)


def headrace(queues: Queues, redis: RedisServer, *arguments: str) -> Any:
    """What a command says as JSON, run by a person who may change objects."""
    done = subprocess.run(
        [sys.executable, "-m", "headrace", *arguments, "--redis-url", redis.url, "-o", "json"],
        env=os.environ | {"KUBECONFIG": str(queues.cluster.kubeconfig)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def leased(queues: Queues, redis: RedisServer, queue: str, **spec: Any) -> str:
    """A queue whose worker runs one job, ``held``, which ends when the test lets it; its name in Redis."""
    name = queues.queue_name(queue)
    queues.apply(queue, workers=workers(), **spec)
    queues.wait(queue)
    jobs.put(redis.url, name, ["held"], "held")
    queues.cluster.wait_for(lambda: jobs.starts(redis.url, name) == 1, what="the job runs")
    return name


def test_J21_O21_a_pause_by_hand_is_said_in_the_object_and_nobody_undoes_it(queues: Queues, redis: RedisServer) -> None:
    name, cluster = leased(queues, redis, "mail"), queues.cluster
    told = headrace(queues, redis, "queue", "pause", name)
    assert told == {"queue": name, "state": "paused", "changed": True, "where": "object"}
    assert queues.get("mail")["spec"]["paused"] is True
    queues.wait("mail", "Paused", "True", "Hold")
    assert headrace(queues, redis, "queue", "pause", name)["changed"] is False
    jobs.put(redis.url, name, ["waits"])
    jobs.let_go(redis.url, name, "held")  # what runs ends, and its outcome counts
    cluster.wait_for(lambda: jobs.runs(redis.url, name) == {"held@v1": 1}, what="the leased job ends")

    # Whoever writes the topology by hand does not unpause it for long: the object says what holds.
    jobs.on_store(redis.url, lambda store: resume_queue(store, name, owned=True))
    queues.annotate("mail", look="now")
    cluster.wait_for(lambda: jobs.known_topology(redis.url, name).settings.stop == "hold", what="put right")

    assert headrace(queues, redis, "queue", "resume", name)["where"] == "object"
    assert queues.get("mail")["spec"]["paused"] is False
    cluster.wait_for(lambda: jobs.runs(redis.url, name).get("waits@v1", 0) == 1, what="it goes on")
    assert jobs.runs(redis.url, name)["held@v1"] == 1


def test_J21_a_queue_deleted_with_a_leased_job_leaves_no_key_and_a_retained_one_its_job(
    queues: Queues, redis: RedisServer
) -> None:
    deleted = leased(queues, redis, "deleted", deletionPolicy="Delete")
    retained = leased(queues, redis, "retained")
    for queue in ("deleted", "retained"):
        queues.delete(queue)
    queues.wait("deleted", "Stalled", "True", "DeletionUnconfirmed")
    queues.annotate("deleted", confirm_delete=queues.get("deleted")["metadata"]["uid"])
    queues.gone("deleted")
    queues.gone("retained")
    jobs.let_go(redis.url, deleted, "held")
    cluster = queues.cluster
    cluster.wait_for(lambda: not cluster.pods(queues.namespace), 90, what="the workers have ended")
    assert jobs.topology(redis.url, deleted) is None
    assert jobs.lasting_keys(redis.url, deleted) == set()

    # The other one was interrupted with its worker, and waits for the next.
    assert jobs.runs(redis.url, retained) == {}
    jobs.let_go(redis.url, retained, "held")
    queues.apply("retained", workers=workers())
    cluster.wait_for(lambda: jobs.runs(redis.url, retained) == {"held@v1": 1}, 90, what="the retained job runs")
