"""What is kept of objects, and when it is not believed any more."""

from __future__ import annotations

from collections.abc import Callable

from headrace_operator.api.names import QueueKey
from headrace_operator.recent import KEPT_SECONDS, Packed, Recent

KEY, OTHER = QueueKey("ns", "mail"), QueueKey("ns", "sms")


class Time:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def kept(recent: Recent, key: QueueKey = KEY) -> object:
    found = recent.get(key, "queue")
    return None if found is None else found.value


def test_a_value_is_kept_until_another_version_is_told_of_or_its_time_is_over() -> None:
    time = Time()
    recent = Recent(time)
    recent.put(KEY, "queue", recent.ticket(), "first", ["5"])
    recent.changed(KEY, "queue", "5")  # what was read comes by as an event as well
    recent.changed(OTHER, "queue", "9")
    recent.changed(KEY, "workers", "7")
    assert kept(recent) == "first"
    recent.changed(KEY, "queue", "6")
    assert kept(recent) is None
    recent.put(KEY, "queue", recent.ticket(), "second", ["6"])
    time.now += KEPT_SECONDS
    assert kept(recent) is None


def test_what_changes_while_it_is_read_is_not_kept() -> None:
    recent = Recent(Time())
    tells: tuple[Callable[[], object], ...] = (
        lambda: recent.changed(KEY, "queue", "6"),
        lambda: recent.changed(KEY, "queue", None),
        lambda: recent.forget(KEY),
    )
    for tell in tells:
        ticket = recent.ticket()
        tell()
        recent.put(KEY, "queue", ticket, "old", ["5"])
        assert kept(recent) is None
    ticket = recent.ticket()
    recent.changed(OTHER, "queue", "6")
    recent.put(KEY, "queue", ticket, "new", ["7"])
    assert kept(recent) == "new", "a change of another Queue is none of this one"


def test_many_queues_that_came_and_went_take_no_memory_for_ever() -> None:
    recent = Recent(Time())
    ticket = recent.ticket()
    for number in range(25_000):
        recent.forget(QueueKey("ns", f"q{number}"))
    assert len(recent._changed) <= 20_000
    recent.put(KEY, "queue", ticket, "old", ["5"])
    assert kept(recent) is None, "it may have changed among those that are forgotten"


def test_a_packed_object_is_unpacked_as_it_was() -> None:
    body = {"metadata": {"name": "a", "labels": {"x": "ü"}}, "spec": {"replicas": 3, "list": [1, None, True]}}
    assert Packed(body).unpacked() == body
