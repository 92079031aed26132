"""Which events are worth a look: none that our own status writes cause."""

from __future__ import annotations

from typing import Any

from headrace_operator.kubernetes.queues_watch import Changes


def body(**metadata: Any) -> dict[str, Any]:
    return {"metadata": {"uid": "u1", "generation": 1, "resourceVersion": "1", **metadata}, "status": {}}


def test_a_status_write_of_our_own_is_no_reason_to_look_again() -> None:
    changes = Changes(lambda: 0.0)
    assert changes.matters(None, body()) == (True, False)
    again = body(resourceVersion="2", managedFields=[{"manager": "headrace-operator"}])
    again["status"] = {"observedGeneration": 1}
    assert changes.matters("MODIFIED", again) == (False, True)


def test_spec_annotations_and_deletion_are() -> None:
    changes = Changes(lambda: 0.0)
    changes.matters("ADDED", body())
    for change in (
        {"generation": 2},
        {"generation": 2, "annotations": {"headrace.dev/promote": "2"}},
        {"generation": 2, "deletionTimestamp": "2026-01-01T00:00:00Z"},
    ):
        assert changes.matters("MODIFIED", body(**change))[0]
        assert not changes.matters("MODIFIED", body(**change))[0]
    assert changes.matters("DELETED", body()) == (True, True)
    assert changes.matters("ADDED", body()) == (True, False)


def test_O41_a_list_that_shows_what_was_never_delivered_betrays_a_silent_watch() -> None:
    now = 0.0
    changes = Changes(lambda: now)
    changes.matters("ADDED", body(resourceVersion="5"))
    assert not changes.missed({"u1": "5"}, since=10)
    # The list at 10 shows another version: late until something comes, whatever it is.
    assert changes.missed({"u1": "6"}, since=10)
    now = 11
    changes.matters("MODIFIED", body(resourceVersion="7"))
    assert not changes.missed({"u1": "6"}, since=10)
    assert changes.missed({"u1": "7", "u2": "3"}, since=10), "one that never came at all"
    now = 13
    changes.matters("DELETED", body(resourceVersion="8"))
    assert not changes.missed({"u1": "7"}, since=12), "it went after the list"
    assert changes.missed({"u1": "7"}, since=14), "it is there again, and nobody said so"
