"""Queue-wide settings as partitions enforce them."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from headrace.settings import Keep, QueueSettings, Retention, partition_limits
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
    with pytest.raises(ValidationError):
        Retention(**wrong)
