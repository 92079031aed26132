"""All results as one Markdown table, between two marks in docs/benchmarks.md."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bench.report import OURS, Result, number, verdict

BEGIN = "<!-- results: begin (python -m bench table) -->"
END = "<!-- results: end -->"


def results(folder: Path) -> list[Result]:
    """Return all results in ``folder``, by number."""
    found = [Result.model_validate_json(path.read_text()) for path in folder.glob("B*.json")]
    return sorted(found, key=lambda result: int(result.id[1:]))


def rendered(found: Sequence[Result]) -> str:
    """Return the table: of each benchmark one line for each series, ours first, and one for each target."""
    if not found:
        return "No results yet: run `make bench ID=B1`.\n"
    lines = ["| | measure | median (min .. max) | target | measured | |", "|---|---|--:|---|--:|---|"]
    for result in found:
        for one in (*result.ours, *result.peers):
            what = result.title if one.subject == OURS else one.subject
            figures = f"{number(one.median)} ({number(one.min)} .. {number(one.max)}) {one.unit}"
            lines.append(f"| {result.id} | {what}: {one.case} | {figures} | | | |")
        for check in result.checks:
            word = verdict(check.met) + ("" if check.binding else " (reported only)")
            wanted = f"{check.relation} {number(check.target)}"
            lines.append(f"| {result.id} | {check.what} | | {wanted} | {number(check.value)} | {word} |")
    lines += ["", "| | taken | rounds | versions | machine |", "|---|---|--:|---|---|"]
    for result in found:
        versions = ", ".join(f"{name} {version}" for name, version in sorted(result.versions.items()))
        machine = (
            f"{result.machine['processor']}, {result.machine['cores']} cores, load {result.machine['load_before']}"
        )
        lines.append(f"| {result.id} | {result.taken_at} | {result.rounds} | {versions} | {machine} |")
    return "\n".join(lines) + "\n"


def replaced(text: str, table: str) -> str:
    """Return ``text`` with what stands between the marks replaced. Raises ValueError if a mark is missing."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the lines {BEGIN!r} and {END!r} are not both there")
    return f"{before}{BEGIN}\n{table}{END}{after}"


def update(folder: Path, document: Path) -> None:
    """Write the table of all results in ``folder`` into ``document``."""
    document.write_text(replaced(document.read_text(), rendered(results(folder))))
