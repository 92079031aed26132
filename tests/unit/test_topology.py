"""The topology value: its transitions, what they refuse, and its stored form."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import (
    InvalidInput,
    TopologyConflict,
    TopologyUnreadable,
    UnknownVersion,
    VersionActive,
    VersionNotHigher,
)
from headrace.retry import RetryPolicy
from headrace.settings import QueueSettings
from headrace.topology import (
    MAX_PARTITIONS,
    MAX_VERSION,
    PartitionRef,
    Topology,
    Version,
    check_partitions,
    check_queue_name,
    check_version,
)

FIRST = Topology.created("emails", 1, 4)


def test_a_queue_begins_with_one_active_version() -> None:
    topology = Topology.created("emails", 3, 4)
    assert (topology.epoch, topology.active, topology.highest, topology.partitions) == (1, 3, 3, 4)
    assert topology.versions == {3: Version(4, "active")}
    assert topology.draining == topology.older == ()


def test_the_stored_form_is_made_once_for_each_value() -> None:
    """Each partition that is told of a topology asks for it."""
    topology = FIRST.promoted(2, 8)
    assert topology.to_json() is topology.to_json()
    after = topology.removing(1)
    assert json.loads(after.to_json())["epoch"] == after.epoch == topology.epoch + 1
    assert after.stamp != topology.stamp


def test_a_promotion_lets_the_others_drain() -> None:
    third = FIRST.promoted(2, 8).promoted(5, 2)
    assert (third.epoch, third.active, third.highest, third.partitions) == (3, 5, 5, 2)
    assert third.draining == third.older == (1, 2)
    assert third.versions == {1: Version(4, "draining"), 2: Version(8, "draining"), 5: Version(2, "active")}
    assert FIRST.versions == {1: Version(4, "active")}  # values do not change


def test_T8_only_higher_versions_are_promoted() -> None:
    topology = FIRST.promoted(5, 8)
    for version in (1, 2, 4):
        with pytest.raises(VersionNotHigher, match="promote version 6 or higher") as caught:
            topology.promoted(version, 8)
        assert (caught.value.version, caught.value.highest) == (version, 5)
    with pytest.raises(TopologyConflict, match="already active with 8 partitions, not 9"):
        topology.promoted(5, 9)
    removed = topology.removing(1).dropped(1)
    with pytest.raises(VersionNotHigher):
        removed.promoted(1, 4)


def test_T8_a_request_that_is_fulfilled_is_known() -> None:
    topology = FIRST.promoted(2, 8)
    assert topology.is_promoted(2, 8)
    assert not topology.is_promoted(2, 4)
    assert not topology.is_promoted(1, 4)


def test_a_version_is_removed_in_two_steps() -> None:
    draining = FIRST.promoted(2, 8)
    removing = draining.removing(1)
    assert removing.versions[1] == Version(4, "removing")
    assert (removing.draining, removing.older) == ((), (1,))
    gone = removing.dropped(1)
    assert (gone.versions, gone.highest, gone.epoch) == ({2: Version(8, "active")}, 2, draining.epoch + 2)


def test_a_version_being_removed_stays_so_when_another_is_promoted() -> None:
    assert FIRST.promoted(2, 8).removing(1).promoted(3, 1).versions[1].state == "removing"


@pytest.mark.parametrize("step", ["removing", "dropped"])
def test_T8_the_active_and_unknown_versions_are_not_removed(step: str) -> None:
    topology = FIRST.promoted(2, 8)
    with pytest.raises(VersionActive, match="promote a higher version"):
        getattr(topology, step)(2)
    with pytest.raises(UnknownVersion, match="v1, v2"):
        getattr(topology, step)(3)


def test_versions_go_on_above_the_largest_number_of_partitions() -> None:
    assert FIRST.promoted(MAX_PARTITIONS + 1, 8).promoted(MAX_VERSION, 4).active == MAX_VERSION
    with pytest.raises(InvalidInput, match="version: is 2147483648"):
        FIRST.promoted(MAX_VERSION + 1, 8)
    with pytest.raises(InvalidInput, match="partitions: is 1025"):
        FIRST.promoted(2, MAX_PARTITIONS + 1)


def test_settings_and_owner_are_edited_apart_from_versions() -> None:
    settings = QueueSettings(retry=RetryPolicy(max_retries=9))
    edited = FIRST.configured(settings)
    assert (edited.epoch, edited.settings, edited.owner) == (2, settings, {})
    owned = edited.configured(QueueSettings(), {"uid": "u"})
    assert (owned.epoch, owned.settings, owned.owner) == (3, QueueSettings(), {"uid": "u"})
    assert owned.versions == FIRST.versions
    assert owned.promoted(2, 1).owner == {"uid": "u"}


def test_partitions_are_named_by_version_and_number() -> None:
    topology = FIRST.promoted(2, 2)
    assert topology.refs(2) == (PartitionRef("emails", 2, 0), PartitionRef("emails", 2, 1))
    assert len(topology.refs(1)) == 4
    assert topology.refs(2)[1].label == "2:1"
    with pytest.raises(UnknownVersion, match="no version 9; versions in its topology: v1, v2"):
        topology.refs(9)


@pytest.mark.parametrize("name", ["a", "emails", "e-mails.2", "0", "a" * 63])
def test_queue_names(name: str) -> None:
    assert check_queue_name(name) == name


@pytest.mark.parametrize("name", ["", "-a", "a-", ".a", "A", "a_b", "a b", "a:b", "{a}", "é", "a" * 64, "a\n", None, 1])
def test_what_cannot_be_a_queue_name(name: Any) -> None:
    with pytest.raises(InvalidInput, match="lower-case") as caught:
        check_queue_name(name)
    assert caught.value.field == "queue"


@pytest.mark.parametrize("number", [0, -1, True, 1.0, "4", None])
def test_numbers_out_of_range_are_refused(number: Any) -> None:
    with pytest.raises(InvalidInput, match="1 to 1024"):
        check_partitions(number)
    with pytest.raises(InvalidInput, match="1 to 2147483647"):
        check_version(number)
    for check, highest in ((check_partitions, MAX_PARTITIONS), (check_version, MAX_VERSION)):
        assert check(highest) == highest
        with pytest.raises(InvalidInput):
            check(highest + 1)


STORED = (
    '{"format":1,"epoch":3,"active":2,"highest":2,"versions":{"1":{"partitions":4,"state":"removing"},'
    '"2":{"partitions":8,"state":"active"}},"owner":{"uid":"u"},"settings":SETTINGS}'
).replace("SETTINGS", QueueSettings(timeout_ms=9000).model_dump_json(exclude_none=True))


def test_the_stored_form_is_fixed() -> None:
    topology = Topology.created("emails", 1, 4, QueueSettings(timeout_ms=9000), {"uid": "u"})
    assert topology.promoted(2, 8).removing(1).to_json() == STORED
    assert Topology.from_json("emails", STORED) == topology.promoted(2, 8).removing(1)
    assert Topology.from_json("emails", STORED.encode()).to_json() == STORED


def test_a_newer_writers_extra_settings_are_left_aside() -> None:
    text = STORED.replace('"timeout_ms":9000', '"timeout_ms":9000,"future":1')
    assert Topology.from_json("emails", text).settings == QueueSettings(timeout_ms=9000)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "[]",
        "null",
        "not json",
        STORED.replace('"format":1', '"format":2'),
        STORED.replace('"active":2', '"active":7'),
        STORED.replace('"partitions":8', '"partitions":"x"'),
        STORED.replace('"timeout_ms":9000', '"timeout_ms":-1'),
    ],
)
def test_a_damaged_or_newer_form_is_refused_by_the_queues_name(text: str) -> None:
    with pytest.raises(TopologyUnreadable, match="queue 'emails': the stored topology cannot be read"):
        Topology.from_json("emails", text)


steps = st.lists(
    st.tuples(st.sampled_from(["promote", "remove", "drop", "configure"]), st.integers(1, 12), st.integers(1, 1024)),
    max_size=12,
)


@given(steps)
def test_any_history_survives_the_stored_form(history: list[tuple[str, int, int]]) -> None:
    topology = FIRST
    for step, version, partitions in history:
        before = topology
        try:
            match step:
                case "promote":
                    topology = topology.promoted(version, partitions)
                case "remove":
                    topology = topology.removing(version)
                case "drop":
                    topology = topology.dropped(version)
                case _:
                    topology = topology.configured(QueueSettings(timeout_ms=partitions), {"n": str(version)})
        except (TopologyConflict, VersionNotHigher, VersionActive, UnknownVersion):
            assert topology is before
            continue
        assert topology.epoch == before.epoch + 1
        assert topology.highest >= before.highest
        assert topology.active <= topology.highest
        assert [v.state for v in topology.versions.values()].count("active") == 1
        assert topology.versions[topology.active].state == "active"
        assert Topology.from_json("emails", topology.to_json()) == topology
    json.loads(topology.to_json())


def test_the_summary_names_every_version() -> None:
    assert FIRST.promoted(2, 8).removing(1).summary() == "epoch 3: v1 removing x4, v2 active x8 (highest ever v2)"
