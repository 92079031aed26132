"""What is said of partitions whose time is not the server's."""

from __future__ import annotations

from headrace.drift import TOLERATED_MS, standing_still
from headrace.topology import Topology

NOW, DAY_MS = 1_796_000_000_000, 86_400_000


def test_J8_a_partition_is_told_whose_time_the_server_has_not_reached() -> None:
    topology = Topology.created("emails", 1, 2)
    first, second = topology.refs(1)
    assert standing_still(topology, {first: NOW - DAY_MS, second: NOW + TOLERATED_MS}, NOW) == []
    (found,) = standing_still(topology, {first: NOW, second: NOW + DAY_MS}, NOW)
    assert (found.code, found.level, found.where) == ("TimeStandsStill", "warning", "queue emails")
    assert "partition 1:1 is 86400 s ahead of the server's clock" in found.problem
    assert "headrace topology promote emails --version 2 --partitions 2" in found.remedy
