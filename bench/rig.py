"""What a benchmark is run with: one server, our side and the peers, and rounds in which all take turns."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

from bench.report import OURS, Check, Result, Sample, Series, all_met
from bench.server import BenchServer
from bench.subject import Action, Outcome, Subject, SubjectError, Unsupported

CONCURRENCY = 100


@dataclass(frozen=True)
class Case:
    """One thing to measure in every round.

    ``measure`` returns a sample, or one for each part by its name. Raises Unsupported if the subject has no such thing.
    """

    subject: str
    name: str
    unit: str
    measure: Callable[[], Sample | dict[str, Sample]]


@dataclass
class Rig:
    """One run. ``jobs`` None: the benchmark's own number; ``missing`` collects peers that could not be measured.

    ``alone``: no peers are wanted, not even those that a benchmark brings itself.
    """

    server: BenchServer
    ours: Subject
    peers: Sequence[Subject]
    missing: dict[str, str]
    rounds: int
    machine: dict[str, str | int | float]
    jobs: int | None = None
    options: dict[str, str] = field(default_factory=dict)
    alone: bool = False
    versions: dict[str, str] = field(default_factory=dict)
    settings: dict[str, dict[str, Any]] = field(default_factory=dict)

    def scaled(self, jobs: int) -> int:
        """Return the number of jobs: as asked for on the command line, else the benchmark's own."""
        return self.jobs or jobs

    def among(self, *names: str) -> list[Subject]:
        """Return the peers of these names that can be run."""
        return [peer for peer in self.peers if peer.name in names]

    def run(self, subject: Subject, action: Action, **parameters: object) -> tuple[Outcome, float]:
        """Run a subject; return its outcome and the CPU seconds of the server's main thread meanwhile.

        Raises SubjectError, Unsupported.
        """
        before = self.server.main_thread_cpu()
        outcome = subject.run(action, {"url": self.server.url, **parameters})
        used = self.server.main_thread_cpu() - before
        if outcome.unsupported:
            raise Unsupported(outcome.unsupported)
        if outcome.redis_cpu_seconds is not None:
            used = outcome.redis_cpu_seconds
        self.noted(subject, action, outcome)
        return outcome, used

    def noted(self, subject: Subject, action: str, outcome: Outcome) -> None:
        """Remember the version and settings that a subject reported."""
        self.versions[subject.name] = outcome.version
        known = self.settings.setdefault(subject.name, {})
        for name, value in outcome.settings.items():
            # The actions of a subject share most settings; only where they differ, the action is named.
            if known.setdefault(name, value) != value:
                known[f"{action} {name}"] = value

    def interleaved(self, cases: Iterable[Case]) -> list[Series]:
        """Measure every case once per round, in turn, so that all meet the same machine.

        A peer that fails is reported as missing and left out from then on; a failure of ours ends the run. A case that
        a peer does not support is reported as missing too, and leaves its other cases alone.
        """
        cases = list(cases)
        found: dict[tuple[int, str], list[Sample]] = {}
        failed: set[str] = set()
        unsupported: set[int] = set()
        for turn in range(self.rounds):
            for number, case in enumerate(cases):
                if case.subject in failed or number in unsupported:
                    continue
                say(f"round {turn + 1}/{self.rounds}  {case.subject} {case.name}")
                try:
                    measured = case.measure()
                except Unsupported as error:
                    unsupported.add(number)
                    self.missing[f"{case.subject}, {case.name}"] = str(error)
                    continue
                except SubjectError as error:
                    if case.subject == OURS:
                        raise
                    failed.add(case.subject)
                    self.missing[case.subject] = str(error)
                    continue
                parts = {"": measured} if isinstance(measured, Sample) else measured
                for part, sample in parts.items():
                    found.setdefault((number, part), []).append(sample)
                    say(f"    {part} {sample.value:,.4g} {case.unit}")
        return [
            Series.of(cases[number].subject, f"{cases[number].name} {part}".strip(), cases[number].unit, samples)
            for (number, part), samples in sorted(found.items(), key=lambda item: item[0][0])
            if cases[number].subject not in failed
        ]

    def result(
        self, id: str, title: str, series: Sequence[Series], checks: Sequence[Check], notes: Sequence[str] = ()
    ) -> Result:
        """Return the result, with all that the rig knows."""
        return Result(
            id=id,
            title=title,
            taken_at=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
            rounds=self.rounds,
            ours=tuple(one for one in series if one.subject == OURS),
            peers=tuple(one for one in series if one.subject != OURS),
            checks=tuple(checks),
            met=all_met(checks),
            missing=dict(self.missing),
            versions={OURS: version("headrace"), **self.versions, "server": self.server.version},
            settings=self.settings,
            machine=self.machine,
            notes=tuple(notes),
        )


def per_job(seconds: float, jobs: int) -> float:
    """Return microseconds per job."""
    return seconds * 1e6 / jobs


def percentile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that at least ``share`` (0..1) of all values do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def throughput(outcome: Outcome, redis_cpu: float | None) -> Sample:
    """Return a sample in jobs per second."""
    return Sample(
        value=outcome.jobs / outcome.seconds,
        jobs=outcome.jobs,
        seconds=outcome.seconds,
        redis_cpu_us=None if redis_cpu is None else per_job(redis_cpu, outcome.jobs),
        client_cpu_us=per_job(outcome.cpu_seconds, outcome.jobs),
    )


def say(line: str) -> None:
    """Tell progress, on standard error: standard output is for the result."""
    print(line, file=sys.stderr, flush=True)
