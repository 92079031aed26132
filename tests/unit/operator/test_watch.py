"""Which events are worth a look: none that our own status writes cause."""

from __future__ import annotations

from typing import Any

from headrace_operator.watch import Changes


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
