"""Draws the figures: one row per workload, on the left how long jobs waited, on the right what it cost."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from xml.sax.saxutils import escape

from tests.simulation.scaling.figures import Figures

COLOURS = {"Headrace": "#0b6e99", "KEDA list length": "#d9822b", "KEDA, tuned": "#e8bf6a", "HPA on CPU": "#8a8f98"}
LEFT, PANEL, GAP, TOP, ROW = 110, 330, 40, 64, 34
WAIT = (0.1, 3000.0)
PRICE = (300.0, 100_000.0)


def draw(figures: Sequence[Figures]) -> str:
    """Return the plot as SVG. Both axes are logarithmic; what is below an axis' begin is drawn there."""
    workloads = list(dict.fromkeys(one.workload for one in figures))
    width, height = LEFT + 2 * PANEL + GAP + 20, TOP + ROW * len(workloads) + 44
    bottom = TOP + ROW * len(workloads)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'font-family="Helvetica, Arial, sans-serif" font-size="12" fill="#24292f">',
        "<title>Waiting time and price of four autoscalers</title>",
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
    ]
    for number, (name, colour) in enumerate(COLOURS.items()):
        x = LEFT + number * 150
        parts += [f'<circle cx="{x + 6}" cy="18" r="6" fill="{colour}"/>', _text(x + 18, 22, name)]
    panels: list[tuple[int, str, tuple[float, float], Callable[[Figures], float]]] = [
        (LEFT, "seconds that the slowest 1 % waited, at least", WAIT, lambda one: one.p99),
        (LEFT + PANEL + GAP, "Pod-seconds", PRICE, lambda one: one.pod_seconds),
    ]
    for left, title, span, value in panels:
        parts.append(_text(left, 48, title, 'font-weight="bold"'))
        parts += _axis(left, span, bottom)
        for row, workload in enumerate(workloads):
            y = TOP + ROW * row + ROW / 2
            ours = [one for one in figures if one.workload == workload]
            at = {one.scaler: _x(left, span, value(one)) for one in ours}
            ends = f'x1="{min(at.values()):.1f}" x2="{max(at.values()):.1f}"'
            parts.append(f'<line {ends} y1="{y}" y2="{y}" stroke="#c8ccd1" stroke-width="2"/>')
            parts += [
                f'<circle cx="{x:.1f}" cy="{y}" r="6" fill="{COLOURS[name]}" fill-opacity="0.9"/>'
                for name, x in reversed(at.items())
            ]
    parts += [
        _text(LEFT - 14, TOP + ROW * row + ROW / 2 + 4, name, 'text-anchor="end"') for row, name in enumerate(workloads)
    ]
    return "\n".join([*parts, "</svg>", ""])


def _axis(left: int, span: tuple[float, float], bottom: int) -> list[str]:
    parts = []
    for power in range(math.ceil(math.log10(span[0])), math.floor(math.log10(span[1])) + 1):
        x = _x(left, span, 10.0**power)
        parts.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{bottom}" stroke="#eaeef2"/>')
        label = f"{10**power:,}" if power >= 0 else f"{10.0**power:g}"
        parts.append(_text(x, bottom + 18, label, 'text-anchor="middle" fill="#57606a"'))
    return parts


def _x(left: int, span: tuple[float, float], value: float) -> float:
    low, high = math.log10(span[0]), math.log10(span[1])
    share = (math.log10(min(max(value, span[0]), span[1])) - low) / (high - low)
    return left + share * PANEL


def _text(x: float, y: float, text: str, attributes: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" {attributes}>{escape(text)}</text>'.replace(" >", ">")
