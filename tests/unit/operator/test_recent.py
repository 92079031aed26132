"""What is known of objects: the newest of what came, whichever way it came."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from headrace_operator.api.names import QueueKey
from headrace_operator.kubernetes.client import ApiUnavailable, Kube, deployments, queue_versions, queues
from headrace_operator.kubernetes.listing import Lister
from headrace_operator.kubernetes.recent import KEPT_SECONDS, Packed, Recent
from tests.unit.operator.api_in_memory import ApiInMemory

KEY = QueueKey("ns", "mail")


class Time:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def recent(time: Time) -> Recent:
    return Recent(time)


def queue(version: int, partitions: int = 4, uid: str = "u1") -> dict[str, Any]:
    metadata = {"namespace": "ns", "name": "mail", "uid": uid, "resourceVersion": str(version)}
    return {"metadata": metadata, "spec": {"version": 1, "partitions": partitions}}


def queue_version(version: int, phase: str = "Active", uid: str = "v1") -> dict[str, Any]:
    metadata = {
        "namespace": "ns",
        "name": f"mail-{uid}",
        "uid": uid,
        "resourceVersion": str(version),
        "labels": {"headrace.dev/queue": "mail"},
    }
    return {"metadata": metadata, "spec": {"version": 1}, "status": {"phase": phase}}


def workers(version: int, replicas: int = 1) -> dict[str, Any]:
    labels = {"headrace.dev/queue": "mail", "app.kubernetes.io/managed-by": "headrace-operator"}
    metadata = {"namespace": "ns", "name": "mail-workers", "uid": "d1", "resourceVersion": str(version)}
    return {"metadata": metadata | {"labels": labels}, "spec": {"replicas": replicas}}


def partitions(recent: Recent) -> int | None:
    found = recent.queue(KEY)
    return None if found is None or found.spec is None else found.spec.partitions


def test_of_two_versions_the_newer_one_is_known_whichever_comes_last(recent: Recent, time: Time) -> None:
    assert partitions(recent) is None
    assert recent.keep_queue(queue(9, 8))
    assert not recent.keep_queue(queue(5, 4)), "an old answer that took its time"
    assert partitions(recent) == 8
    assert not recent.keep_queue(queue(9, 8))
    assert recent.keep_queue(queue(10, 16))
    assert partitions(recent) == 16
    time.now += KEPT_SECONDS
    assert partitions(recent) is None
    assert not recent.keep_queue(queue(10, 16)), "it is still so"
    assert partitions(recent) == 16


def test_what_has_gone_is_not_brought_back_by_an_old_answer(recent: Recent) -> None:
    recent.complete = True
    recent.keep_queue(queue(9))
    recent.gone("queue", KEY, "u0", "8")
    assert partitions(recent) == 4, "another one of that name went"
    recent.gone("queue", KEY, "u1", "12")
    assert not recent.keep_queue(queue(11))
    assert partitions(recent) is None
    assert recent.keep_queue(queue(13, 2, uid="u2"))
    assert partitions(recent) == 2
    recent.keep_version(KEY, queue_version(5))
    recent.gone("versions", KEY, "v1", "7")
    recent.keep_version(KEY, queue_version(6))
    assert recent.versions(KEY) == ()


def phases(recent: Recent) -> set[str] | None:
    found = recent.versions(KEY)
    return None if found is None else {body["status"]["phase"] for body in found}


def test_the_versions_of_a_queue_are_known_once_all_were_listed(recent: Recent, time: Time) -> None:
    recent.keep_version(KEY, queue_version(5))
    assert phases(recent) is None
    recent.complete = True
    assert phases(recent) == {"Active"}
    assert recent.versions(QueueKey("ns", "new")) == ()
    recent.keep_version(KEY, queue_version(6, "Draining"))
    recent.keep_version(KEY, queue_version(7, "Active", uid="v2"))
    assert phases(recent) == {"Draining", "Active"}
    recent.mistrust(KEY)
    assert phases(recent) is None
    recent.keep_versions(KEY, [queue_version(8, "Completed")])
    assert phases(recent) == {"Completed"}
    time.now += KEPT_SECONDS
    assert phases(recent) is None


def replicas(recent: Recent) -> int | None:
    found = recent.workers(KEY)
    return None if found is None or found.value is None else int(found.value.unpacked()["spec"]["replicas"])


def test_a_deployment_is_read_again_when_its_watch_shows_another_version(recent: Recent, time: Time) -> None:
    recent.keep_workers(KEY, None)
    assert recent.workers(KEY) is not None
    recent.workers_changed(KEY, 3, there=True)
    assert recent.workers(KEY) is None
    recent.keep_workers(KEY, workers(5, 2))
    recent.keep_workers(KEY, workers(4, 1))
    assert replicas(recent) == 2
    time.now += KEPT_SECONDS - 1
    recent.workers_changed(KEY, 5, there=True)
    time.now += 2
    assert replicas(recent) == 2, "the watch has said that it is still so"
    recent.workers_changed(KEY, 6, there=True)
    assert recent.workers(KEY) is None
    recent.keep_workers(KEY, workers(6, 3))
    recent.workers_changed(KEY, 7, there=False)
    assert recent.workers(KEY) is None


def test_an_answer_that_was_under_way_while_the_watch_told_something_newer_is_not_kept(recent: Recent) -> None:
    recent.workers_changed(KEY, 8, there=True)
    recent.keep_workers(KEY, workers(7, 1))
    assert recent.workers(KEY) is None, "nothing would ever tell that it has two replicas by now"
    recent.keep_workers(KEY, None)
    assert recent.workers(KEY) is None, "it was made after it had been looked for"
    recent.keep_workers(KEY, workers(8, 2))
    assert replicas(recent) == 2
    recent.keep_workers(KEY, workers(10, 4))
    recent.workers_changed(KEY, 9, there=True)
    assert replicas(recent) == 4, "the watch lags behind our own write"


def test_a_deployment_that_has_gone_is_not_brought_back_by_an_answer_that_was_under_way(recent: Recent) -> None:
    recent.workers_changed(KEY, 9, there=False)
    recent.keep_workers(KEY, workers(8))
    assert recent.workers(KEY) is None
    recent.keep_workers(KEY, None)
    assert recent.workers(KEY) is not None
    recent.keep_workers(KEY, workers(11, 3))
    assert replicas(recent) == 3, "another one was made"


def test_nothing_older_is_believed_of_a_queue_that_is_mistrusted(recent: Recent) -> None:
    recent.keep_queue(queue(9, 8))
    recent.mistrust(KEY)
    recent.keep_queue(queue(8, 4))
    assert partitions(recent) is None
    recent.keep_queue(queue(9, 8))
    assert partitions(recent) == 8


def test_a_packed_object_is_unpacked_as_it_was() -> None:
    body = {"metadata": {"name": "a", "labels": {"x": "ü"}}, "spec": {"replicas": 3, "list": [1, None, True]}}
    assert Packed(body).unpacked() == body


def test_queues_that_scale_a_deployment_of_somebody_are_known_by_namespace_however_old(
    recent: Recent, time: Time
) -> None:
    body = queue(5)
    body["spec"]["workers"] = {"scaleTargetRef": {"name": "theirs"}}
    recent.keep_queue(body)
    time.now += 2 * KEPT_SECONDS
    assert [found.name for found in recent.scalers("ns")] == ["mail"]
    assert recent.scalers("other") == []
    recent.mistrust(KEY)
    assert [found.name for found in recent.scalers("ns")] == ["mail"]
    recent.keep_queue(queue(6))
    assert recent.scalers("ns") == []


async def test_a_list_makes_everything_known_and_tells_what_a_watch_has_missed(recent: Recent) -> None:
    api = ApiInMemory()
    api.objects = {
        f"{queues('ns')}/mail": queue(5),
        f"{queue_versions('ns')}/mail-v1": queue_version(6),
        f"{deployments('ns')}/mail-workers": workers(7, 4),
    }
    lister = Lister(cast(Kube, api), recent, ["ns"])
    found = await lister.list_all()
    assert found == {KEY: ("u1", "5", True)}
    assert (partitions(recent), phases(recent), replicas(recent)) == (4, {"Active"}, 4)
    listed = recent.workers(KEY)
    assert listed is not None
    assert listed.value is not None
    # Else it would differ from what is wanted, and be applied again after every start.
    assert listed.value.unpacked().items() >= {"apiVersion": "apps/v1", "kind": "Deployment"}.items()
    assert not (await lister.list_all())[KEY].changed
    api.objects[f"{queues('ns')}/mail"] = queue(8, 16)
    assert (await lister.list_all())[KEY].changed
    assert partitions(recent) == 16


async def test_a_queue_version_whose_end_was_missed_is_noticed_by_the_next_list(recent: Recent) -> None:
    api = ApiInMemory()
    api.objects = {
        f"{queues('ns')}/mail": queue(5),
        f"{queue_versions('ns')}/mail-v1": queue_version(6),
    }
    lister = Lister(cast(Kube, api), recent, ["ns"])
    await lister.list_all()
    assert phases(recent) == {"Active"}
    del api.objects[f"{queue_versions('ns')}/mail-v1"]  # and no watch tells of it
    assert phases(recent) == {"Active"}
    assert (await lister.list_all())[KEY].changed, "the Queue is to be looked at"
    assert recent.versions(KEY) is None, "its versions are read anew"
    assert recent.version_uids() == {}
    recent.keep_queue(queue(5))
    recent.keep_versions(KEY, [])
    assert not (await lister.list_all())[KEY].changed


async def test_a_queue_version_that_comes_during_a_list_is_not_taken_for_gone(recent: Recent) -> None:
    class Slow(ApiInMemory):
        async def items(self, path: str, *, labels: str = "") -> AsyncIterator[dict[str, Any]]:
            listed = [body async for body in super().items(path, labels=labels)]
            if path == queue_versions("ns"):
                recent.keep_version(KEY, queue_version(9))  # created after the server has answered
            for body in listed:
                yield body

    api = Slow()
    api.objects = {f"{queues('ns')}/mail": queue(5)}
    recent.keep_queue(queue(5))
    assert not (await Lister(cast(Kube, api), recent, ["ns"]).list_all())[KEY].changed
    assert phases(recent) == {"Active"}


class Broken(ApiInMemory):
    async def get(self, path: str) -> dict[str, Any]:
        raise ApiUnavailable("no answer")

    def items(self, path: str, *, labels: str = "") -> Any:
        raise ApiUnavailable("no answer")


async def test_a_list_that_failed_makes_nothing_known(recent: Recent) -> None:
    with pytest.raises(ApiUnavailable):
        await Lister(cast(Kube, Broken()), recent).list_all()
    assert not recent.complete
