"""Queue-wide settings as partitions enforce them."""

from __future__ import annotations

import json

import pytest
from pydantic import ValidationError

from headrace.retry import RetryPolicy
from headrace.setting_errors import InvalidSettings
from headrace.settings import DrainSettings, Keep, QueueSettings, Retention, partition_limits
from headrace.topology import Topology


def test_finished_jobs_are_off_unless_asked_for() -> None:
    limits = partition_limits(QueueSettings(), 4)
    assert (limits.finished, limits.dead, limits.history) == (None, None, 20)
    assert not QueueSettings().keeps_finished


def test_a_retention_has_defaults_of_which_each_partition_keeps_its_part() -> None:
    settings = QueueSettings(retention=Retention())
    assert settings.keeps_finished
    limits = partition_limits(settings, 16)
    assert limits.finished == Keep(63, 4 << 20, 3_600_000)
    assert (limits.dead, limits.history) == (625, 20)


def test_none_kept_is_off_while_the_rest_holds() -> None:
    settings = QueueSettings(retention=Retention(done_count=0, dead_count=1, history_entries=0))
    assert not settings.keeps_finished
    limits = partition_limits(settings, 1024)
    assert (limits.finished, limits.dead, limits.history) == (None, 1, 0)


def test_a_retention_survives_its_stored_form() -> None:
    settings = QueueSettings(retention=Retention(done_seconds=5, done_bytes=2048, dead_count=7))
    stored = Topology.created("emails", 1, 1, settings).to_json()
    assert Topology.from_json("emails", stored).settings == settings


@pytest.mark.parametrize(
    "wrong", [{"done_seconds": 0}, {"done_count": -1}, {"dead_count": 0}, {"history_entries": 201}]
)
def test_what_is_out_of_range_is_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(InvalidSettings, match=f"Retention.{next(iter(wrong))}: .*; give [0-9]+ to [0-9]+"):
        Retention(**wrong)


@pytest.mark.parametrize("made", [QueueSettings, Retention, DrainSettings])
def test_a_name_that_is_no_setting_is_refused(made: type[QueueSettings | Retention | DrainSettings]) -> None:
    with pytest.raises(ValidationError, match="ratepersecond"):
        made.model_validate({"ratepersecond": 3})


def test_stored_settings_that_only_a_newer_version_knows_are_left_out_when_read() -> None:
    settings = QueueSettings(max_length=5, retention=Retention(done_seconds=5), retry=RetryPolicy(max_retries=1))
    stored = json.loads(Topology.created("emails", 1, 1, settings).to_json())
    for part in (stored["settings"], *(stored["settings"][name] for name in ("retention", "retry", "drain"))):
        part["of_a_newer_version"] = 7
    assert Topology.from_json("emails", json.dumps(stored)).settings == settings
