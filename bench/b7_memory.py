"""B7: bytes that the server holds per queued job with a payload of 128 bytes, ready and scheduled."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from bench.report import OURS, Check, Result, Sample, Series, median_of
from bench.rig import Case, Rig
from bench.subject import Subject

TITLE = "memory per queued job"
JOBS = 100_000
PAYLOAD = 128
DELAY_SECONDS = 86_400
LIMITS = {"ready": 300.0, "scheduled": 420.0}


def run(rig: Rig) -> Result:
    """Measure and compare."""
    jobs = rig.scaled(JOBS)
    cases = [
        Case(subject.name, state, "bytes/job", partial(memory, rig, subject, jobs, state))
        for state in LIMITS
        for subject in (rig.ours, *rig.peers)
    ]
    series = rig.interleaved(cases)
    note = f"used_memory after {PAYLOAD}-byte payloads were enqueued, less that before; generated ids, one partition."
    return rig.result("B7", TITLE, series, checks(series), [note])


def memory(rig: Rig, subject: Subject, jobs: int, state: str) -> Sample:
    """Fill an empty server and compare its memory. Raises Unsupported if the subject has no delayed jobs."""
    count = subject.jobs(jobs)
    delay = {"delay": DELAY_SECONDS} if state == "scheduled" else {}
    # Once before, so that the scripts and the queue's own keys are not counted as jobs.
    rig.server.flush()
    rig.run(subject, "fill", jobs=1, payload=PAYLOAD, **delay)
    before = rig.server.used_memory()
    rig.run(subject, "fill", jobs=count, payload=PAYLOAD, **delay)
    return Sample(value=(rig.server.used_memory() - before) / count, jobs=count)


def checks(series: Sequence[Series]) -> list[Check]:
    """Compare with the two limits."""
    found = []
    for state, limit in LIMITS.items():
        measured = median_of(series, OURS, state)
        found.append(Check.of(f"{state}, bytes/job", measured, "<=", limit))
    return found
