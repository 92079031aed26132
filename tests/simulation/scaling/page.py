"""The table of docs/scaling.md and the plot beside it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tests.simulation.scaling.figures import Figures
from tests.simulation.scaling.plot import draw
from tests.simulation.scaling.workloads import WORKLOADS

DOCS = Path(__file__).resolve().parents[3] / "docs"
BEGIN, END = "<!-- table: begin -->\n", "<!-- table: end -->\n"


def table(figures: Sequence[Figures]) -> str:
    """Return the figures as Markdown."""
    lines = [
        "| workload | scaler | waited s: p50 | p99 | longest | Pod-seconds | most Pods | runs broken off |",
        "|---|---|--:|--:|--:|--:|--:|--:|",
    ]
    texts = {workload.name: f"**{workload.name}**: {workload.text}" for workload in WORKLOADS}
    seen: set[str] = set()
    for one in figures:
        label = "" if one.workload in seen else texts[one.workload]
        seen.add(one.workload)
        waits = " | ".join(f"{seconds:,.1f}" for seconds in (one.p50, one.p99, one.longest))
        price = f"{round(one.pod_seconds, -1):,.0f} | {one.most} | {one.handed_back}"
        lines.append(f"| {label} | {one.scaler} | {waits} | {price} |")
    return "\n".join(lines) + "\n"


def pages(figures: Sequence[Figures]) -> dict[Path, str]:
    """Return what the page and the plot should be."""
    page = DOCS / "scaling.md"
    before, begin, rest = page.read_text().partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{page}: the marks of the table are missing")
    return {page: before + BEGIN + table(figures) + END + after, DOCS / "scaling.svg": draw(figures)}
