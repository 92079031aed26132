"""What a benchmark found: samples, series, checks against targets; as JSON and as a Markdown table."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

OURS = "headrace"


class _Value(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Sample(_Value):
    """One round of one subject.

    ``value`` is in the unit of the benchmark. ``redis_cpu_us`` (main thread) and ``client_cpu_us`` are microseconds per
    job; None where they are not measured.
    """

    value: float
    jobs: int
    seconds: float | None = None
    redis_cpu_us: float | None = None
    client_cpu_us: float | None = None


class Series(_Value):
    """All rounds of one subject in one case (such as ``bulk``); the statistics are over the rounds."""

    subject: str
    case: str
    unit: str
    jobs: int
    median: float
    min: float
    max: float
    redis_cpu_us: float | None
    client_cpu_us: float | None
    samples: tuple[Sample, ...]

    @staticmethod
    def of(subject: str, case: str, unit: str, samples: Sequence[Sample]) -> Series:
        """Return the series of at least one sample."""
        values = [sample.value for sample in samples]
        return Series(
            subject=subject,
            case=case,
            unit=unit,
            jobs=samples[0].jobs,
            median=statistics.median(values),
            min=min(values),
            max=max(values),
            redis_cpu_us=_median(sample.redis_cpu_us for sample in samples),
            client_cpu_us=_median(sample.client_cpu_us for sample in samples),
            samples=tuple(samples),
        )


class Check(_Value):
    """One target. ``value`` and ``met`` are None while something that it needs was not measured.

    ``binding``: it counts for the whole; a figure that is only reported does not.
    """

    what: str
    value: float | None
    relation: Literal[">=", "<="]
    target: float
    met: bool | None
    binding: bool = True

    @staticmethod
    def of(
        what: str,
        value: float | None,
        relation: Literal[">=", "<="],
        target: float,
        *,
        complete: bool = True,
        binding: bool = True,
    ) -> Check:
        """Compare. ``complete`` False: peers are missing, so that a failure is certain but a success is not."""
        met: bool | None = None
        if value is not None:
            met = value >= target if relation == ">=" else value <= target
            if met and not complete:
                met = None
        return Check(what=what, value=value, relation=relation, target=target, met=met, binding=binding)


class Result(_Value):
    """One run of one benchmark. ``missing`` says why a peer was not measured."""

    id: str
    title: str
    taken_at: str
    rounds: int
    ours: tuple[Series, ...]
    peers: tuple[Series, ...]
    checks: tuple[Check, ...]
    met: bool | None
    missing: dict[str, str]
    versions: dict[str, str]
    settings: dict[str, dict[str, Any]]
    machine: dict[str, str | int | float]
    notes: tuple[str, ...] = ()

    def write(self, folder: Path) -> tuple[Path, Path]:
        """Write ``<id>.json`` and ``<id>.md`` into ``folder``; return their paths."""
        folder.mkdir(parents=True, exist_ok=True)
        data, table = folder / f"{self.id}.json", folder / f"{self.id}.md"
        for path, text in ((data, self.model_dump_json(indent=2) + "\n"), (table, markdown(self))):
            fresh = path.with_suffix(path.suffix + ".tmp")
            fresh.write_text(text)
            fresh.replace(path)
        return data, table


def find(series: Iterable[Series], subject: str, case: str) -> Series | None:
    """Return the series of a subject in a case, None if it was not measured."""
    return next((one for one in series if one.subject == subject and one.case == case), None)


def median_of(series: Iterable[Series], subject: str, case: str) -> float | None:
    """Return the median of a subject in a case, None if it was not measured."""
    found = find(series, subject, case)
    return None if found is None else found.median


def ratio(ours: Series | None, peer: Series | None) -> float | None:
    """Return the ratio of the medians, None if one of them is missing or zero."""
    if ours is None or peer is None or not peer.median:
        return None
    return ours.median / peer.median


def fastest(series: Iterable[Series], subjects: Sequence[str], case: str) -> tuple[Series | None, bool]:
    """Return the series with the highest median among ``subjects``, and whether all of them were measured."""
    found = [one for one in series if one.case == case and one.subject in subjects]
    best = max(found, key=lambda one: one.median, default=None)
    return best, {one.subject for one in found} == set(subjects)


def all_met(checks: Iterable[Check]) -> bool | None:
    """Return False if a binding check failed, None if one is open or there is none, else True."""
    outcomes = [check.met for check in checks if check.binding]
    if False in outcomes:
        return False
    return None if not outcomes or None in outcomes else True


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


# ---- Markdown -------------------------------------------------------------------------------------------------------


def number(value: float | None) -> str:
    """Return a figure with three significant digits or more, thousands separated; a dash for None."""
    if value is None:
        return "–"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def verdict(met: bool | None) -> str:
    """Return a word for an outcome."""
    return {True: "met", False: "missed", None: "open"}[met]


def measures_table(series: Sequence[Series]) -> list[str]:
    """Return the lines of a table of all series."""
    lines = [
        "| subject | case | jobs | median | min | max | unit | Redis CPU us/job | client CPU us/job |",
        "|---|---|--:|--:|--:|--:|---|--:|--:|",
    ]
    lines += [
        f"| {one.subject} | {one.case} | {one.jobs:,} | {number(one.median)} | {number(one.min)} | {number(one.max)} "
        f"| {one.unit} | {number(one.redis_cpu_us)} | {number(one.client_cpu_us)} |"
        for one in series
    ]
    return lines


def checks_table(checks: Sequence[Check]) -> list[str]:
    """Return the lines of a table of all targets."""
    lines = ["| target | measured | wanted | |", "|---|--:|--:|---|"]
    lines += [
        f"| {check.what} | {number(check.value)} | {check.relation} {number(check.target)} "
        f"| {verdict(check.met)}{'' if check.binding else ' (reported only)'} |"
        for check in checks
    ]
    return lines


def markdown(result: Result) -> str:
    """Return the readable form of a result."""
    lines = [f"# {result.id}: {result.title}", ""]
    lines += [f"Median, minimum and maximum of {result.rounds} interleaved round(s); {result.taken_at}.", ""]
    lines += measures_table([*result.ours, *result.peers])
    if result.checks:
        lines += ["", *checks_table(result.checks), "", f"All targets: **{verdict(result.met)}**."]
    if result.missing:
        lines += ["", "Not measured:", ""]
        lines += [f"- {peer}: {why}" for peer, why in sorted(result.missing.items())]
    if result.notes:
        lines += ["", *(f"- {note}" for note in result.notes)]
    lines += ["", "Versions: " + ", ".join(f"{name} {version}" for name, version in sorted(result.versions.items()))]
    lines += ["", "Settings:", ""]
    lines += [
        f"- {subject}: " + ", ".join(f"{name} {value}" for name, value in settings.items())
        for subject, settings in sorted(result.settings.items())
    ]
    lines += ["", "Machine: " + ", ".join(f"{name} {value}" for name, value in result.machine.items()), ""]
    return "\n".join(lines)
