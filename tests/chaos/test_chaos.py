"""A short chaos run with real parts, and what makes a verdict: one that could not fail would prove nothing."""

from __future__ import annotations

import dataclasses
import random

import pytest

from tests.chaos.faults import TRACKS, Fault, Step, drawn, timeline
from tests.chaos.run import run
from tests.chaos.stage import Effect, Stage
from tests.chaos.verdict import Verdict, longest_gap, missing_seconds, overlaps, verdict
from tests.services.redis import RedisServer


@pytest.mark.timeout(420)
def test_L9_LE30_QJ1_real_leaders_under_faults_overlap_in_nothing_and_no_job_is_lost() -> None:
    """The leader is frozen, and the API server is gone; the next one loses MongoDB as well; then it is killed."""
    faults = [
        Fault(0.5, "freeze", 1, True),
        Fault(0.6, "api", 2.4, False),
        Fault(1.8, "mongo gone", 0.2, False),
        Fault(2.2, "kill", 0.2, True),
    ]
    struck: list[str] = []
    with RedisServer() as server, Stage(server.url) as stage:

        def followed(name: str) -> bool:
            return stage.effects(-1)[-1].name != name

        def told(fault: Fault, step: Step, name: str) -> None:
            struck.append(f"{fault.kind} {step}")
            match fault.kind, step:
                case (("freeze" | "kill"), "mend"):  # it goes on, or comes back, when another one leads
                    stage.until(f"{name} is followed", lambda: followed(name))
                case "mongo gone", "begin":
                    stage.until("MongoDB's lock instead of the Lease", lambda: stage.backend() == "mongo")
                case "mongo gone", "mend":
                    stage.until("Redis's lock instead of MongoDB's", lambda: stage.backend() == "redis")
                    assert all(worker.running for worker in stage.workers.values())

        found = run(stage, faults, 3, random.Random(3), told)
    assert struck == [
        *("freeze begin", "api begin", "freeze mend", "mongo gone begin", "mongo gone mend"),
        *("kill begin", "kill mend", "api mend"),
    ]
    assert found.sound, str(found)
    assert found.epochs >= 3  # of the one that was frozen, of the one that was killed, and of whoever followed
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
