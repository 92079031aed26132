"""B12: how long nobody leads: after a crash, a stop, an outage of the API server. All parts are real ones."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

from bench.report import OURS, Check, Result, Sample, Series, find, median_of
from bench.rig import Case, Rig
from headrace.election.timings import STANDARD
from tests.chaos.stage import Stage, Stream
from tests.chaos.verdict import longest_gap, overlaps

TITLE = "leadership"
PEERS = ()
OUTAGE = "60"
CRASH = "crash to the next leader's first duty"
HANDOVER = "SIGTERM to the next leader's first duty"
WITHOUT_DUTIES, WITHOUT_JOBS = (
    "API server gone: longest time without a duty",
    "API server gone: longest time without a job",
)
OVERLAPS, LOST = "overlaps of leaders in fenced effects", "jobs lost"


def run(rig: Rig) -> Result:
    """Measure. Option: ``outage``, seconds without the API server (default 60)."""
    outage = float(rig.options.get("outage", OUTAGE))
    cases = [
        Case(OURS, "", "s", partial(follow, rig, "standard", outage)),
        Case(OURS, "", "s", partial(follow, rig, "fast", 0.0)),
    ]
    counts = (OVERLAPS, LOST)
    series = [
        one.model_copy(update={"unit": "count"}) if one.case.endswith(counts) else one for one in rig.interleaved(cases)
    ]
    notes = [
        "Three workers. A duty is a script that begins with the fence, sent every 20 ms from the begin of a term; "
        "times are by the clock of Redis.",
        f"The API server is killed and comes back {outage:.0f} s later, with the standard profile; meanwhile a job is "
        "enqueued every 50 ms.",
    ]
    return rig.result("B12", TITLE, series, checks(series), notes)


def follow(rig: Rig, profile: str, outage: float) -> dict[str, Sample]:
    """Let leaders of one profile end in each way, one after the other."""
    rig.server.flush()
    with Stage(rig.server.url, profile=profile) as stage:
        found: dict[str, Sample] = {}
        for what, number in ((CRASH, signal.SIGKILL), (HANDOVER, signal.SIGTERM)):
            leader = settled(stage)
            found[f"{profile}: {what}"] = Sample(value=stage.follow(leader, number) / 1000, jobs=0)
            stage.restart(leader)
        if outage:
            found |= without_api(stage, outage)
        found[f"{profile}: {OVERLAPS}"] = Sample(value=overlaps(stage.effects()), jobs=0)
        return found


def settled(stage: Stage) -> str:
    """Return the leader once it leads through the Lease, and the others have looked at it for a while."""
    stage.until("somebody leads through the Lease", lambda: stage.leader() and stage.backend() == "lease")
    time.sleep(3)
    return stage.leader()


def without_api(stage: Stage, seconds: float) -> dict[str, Sample]:
    """Take the API server away for so long, while jobs come."""
    settled(stage)
    first = len(stage.effects())
    with Stream(stage.url) as stream:
        stage.stop_api()
        gaps = watch(lambda: len(stream.ids) and sum(stage.runs().values()), seconds)
        fell_back = stage.backend()
        stage.start_api()
    with suppress(TimeoutError):  # then some are lost
        stage.until("every job ran", lambda: stage.runs().keys() >= set(stream.ids), within=60)
    if fell_back != "mongo":
        raise RuntimeError(f"the leader leads through {fell_back}, not MongoDB")
    lost = len(set(stream.ids) - stage.runs().keys())
    return {
        f"standard: {WITHOUT_DUTIES}": Sample(value=longest_gap(stage.effects(first)) / 1000, jobs=0),
        f"standard: {WITHOUT_JOBS}": Sample(value=gaps, jobs=len(stream.ids)),
        f"standard: {LOST}": Sample(value=lost, jobs=len(stream.ids)),
    }


def watch(number: Callable[[], int], seconds: float) -> float:
    """Return the longest time (s) within so many seconds in which a number did not change."""
    longest, last, changed, ends = 0.0, number(), time.monotonic(), time.monotonic() + seconds
    while (now := time.monotonic()) < ends:
        if (found := number()) != last:
            last, changed = found, now
        longest = max(longest, now - changed)
        time.sleep(0.02)
    return longest


def checks(series: Sequence[Series]) -> list[Check]:
    """The targets; the longest of all rounds counts where nothing but a bound is promised."""

    def worst(case: str) -> float | None:
        one = find(series, OURS, case)
        return None if one is None else one.max

    resume = STANDARD.fallback_after + STANDARD.retry_period
    every = [one for one in series if one.case.endswith(OVERLAPS)]
    return [
        Check.of("standard, crash: longest, s", worst(f"standard: {CRASH}"), "<=", 25.0),
        Check.of("fast, crash: median, s", median_of(series, OURS, f"fast: {CRASH}"), "<=", 5.0),
        Check.of("standard, SIGTERM: median, s", median_of(series, OURS, f"standard: {HANDOVER}"), "<=", 0.5),
        Check.of("fast, SIGTERM: median, s", median_of(series, OURS, f"fast: {HANDOVER}"), "<=", 0.5),
        Check.of("API server gone: longest time without a duty, s", worst(f"standard: {WITHOUT_DUTIES}"), "<=", resume),
        Check.of("API server gone: longest time without a job, s", worst(f"standard: {WITHOUT_JOBS}"), "<=", resume),
        Check.of("API server gone: jobs lost", worst(f"standard: {LOST}"), "<=", 0.0),
        Check.of(OVERLAPS, max((one.max for one in every), default=None), "<=", 0.0),
    ]
