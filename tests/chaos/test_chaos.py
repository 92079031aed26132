"""A short chaos run with real parts, and what makes a verdict: one that could not fail would prove nothing."""

from __future__ import annotations

import dataclasses

import pytest

from tests.chaos.faults import TRACKS, drawn, timeline
from tests.chaos.run import run
from tests.chaos.stage import Effect, Stage
from tests.chaos.verdict import Verdict, longest_gap, missing_seconds, overlaps, verdict
from tests.services.redis import RedisServer


@pytest.mark.timeout(180)
def test_L9_LE9_LE30_QJ1_real_leaders_under_faults_overlap_in_nothing_and_no_job_is_lost() -> None:
    with RedisServer() as server, Stage(server.url) as stage:
        found = run(stage, seed=3, seconds=8)
    assert found.sound, str(found)
    assert found.epochs > 1  # the faults did something
    assert found.doubled_ticks <= found.epochs  # a run that was killed before its acknowledgement
    assert found.jobs > 0
    assert found.ticks > 5


def test_faults_are_those_of_their_seed_and_are_mended_in_time() -> None:
    faults = drawn(7, 600)
    assert faults == drawn(7, 600) != drawn(8, 600)
    assert {fault.kind for fault in faults} == {kind for kinds in TRACKS for kind in kinds}
    assert len(faults) > 60
    for kinds in TRACKS:  # one fault at a time on each part
        steps = [(at, what) for at, fault, what in timeline(faults) if fault.kind in kinds]
        assert [what for _, what in steps] == ["begin", "mend"] * (len(steps) // 2)
        assert steps[-1][0] < 600


def effects(text: str) -> list[Effect]:
    return [Effect(int(word[0]), word[1], n * 100) for n, word in enumerate(text.split())]


@pytest.mark.parametrize(
    ("text", "found"), [("1a 1a 2b 2b 4a", 0), ("1a 2b 1a 2b", 1), ("1a 1b", 1), ("1a 3b 2a 2a 3b", 2), ("", 0)]
)
def test_an_overlap_is_an_older_epoch_after_a_newer_one_or_a_second_writer(text: str, found: int) -> None:
    assert overlaps(effects(text)) == found


def test_lost_jobs_and_seconds_and_doubled_runs_are_counted() -> None:
    runs = {"a": 1, "b": 2, "tick@2026-05-04T12:00:00Z": 1, "tick@2026-05-04T12:00:03Z": 2}
    found = verdict(effects("1a 2b"), 5, ["a", "b", "c"], runs)
    assert found == Verdict(2, 2, 5, 0, 100, 3, 2, lost=1 + 2, doubled=1, doubled_ticks=1)
    assert not found.sound
    assert dataclasses.replace(found, lost=0).sound
    assert not dataclasses.replace(found, lost=0, overlaps=1).sound
    assert not dataclasses.replace(found, lost=0, effects=0).sound
    assert "3 lost" in str(found)


def test_gaps() -> None:
    assert longest_gap([Effect(1, "a", 10), Effect(1, "a", 40), Effect(2, "b", 45)]) == 30
    assert longest_gap([]) == 0
    assert missing_seconds([]) == 0
