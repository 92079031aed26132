"""Keep docs/scenarios.md and the tests' names in step.

A test that proves a scenario carries its id as a part of its name (`test_J2_...`, `test_V1_T9_...`). The tables of the
document have four columns: id, what must hold, tests, still open. `python -m scripts.scenario_map` reports what does
not agree; `--update` first fills the tests column from the names found below tests/. The other columns are written by
hand.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DOCUMENT = ROOT / "docs" / "scenarios.md"
TESTS = ROOT / "tests"
HEADER = "| id | must hold | tests | still open |"


def numbered(family: str, *numbers: int | range) -> list[str]:
    """Ids of one family, from single numbers and ranges."""
    return [f"{family}{n}" for part in numbers for n in ([part] if isinstance(part, int) else part)]


IDS = (
    *numbered("T", range(1, 12)),
    *numbered("J", range(1, 14), range(15, 20), 21),
    *numbered("P", range(1, 5)),
    *numbered("M", range(1, 16), 17, 18, 20, 21),
    *numbered("L", range(1, 8), range(9, 15), 16, 17),
    *numbered("K", range(1, 9)),
    *numbered("QA", range(2, 6), range(7, 16), 17, 18),
    *numbered("QB", range(1, 7), 8, 9),
    *numbered("QC", 1, 2, range(4, 8)),
    *numbered("QD", 1, 2, range(4, 8)),
    *numbered("QE", range(1, 4), 5, 6),
    *numbered("QF", 1, range(3, 10)),
    *numbered("QG", range(1, 9)),
    *numbered("QH", range(1, 6)),
    *numbered("QI", 1, 2, 4, 6, 7),
    *numbered("QJ", range(1, 4), 5),
    *numbered("QK", range(1, 5), 6),
    *numbered("O", range(1, 9), range(10, 24), 25, 26, range(28, 33), 34, 35, range(37, 48), 49, 50, 52, 53),
    *numbered("E", range(1, 17)),
    *numbered("V", range(1, 22)),
    *numbered("LE", range(1, 39)),
)


@dataclass(frozen=True)
class Row:
    """One scenario of the document; `tests` are `file::function`, `still_open` is empty when fully covered."""

    id: str
    must_hold: str
    tests: tuple[str, ...]
    still_open: str


def parse_row(line: str) -> Row | None:
    """The scenario in a line of the document; None for any other line."""
    cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
    if not line.startswith("|") or len(cells) != 4 or not re.fullmatch(r"[A-Z]{1,2}\d+", cells[0]):
        return None
    return Row(cells[0], cells[1], tuple(re.findall(r"`([^`]+)`", cells[2])), cells[3])


def parse(document: str) -> list[Row]:
    """All scenarios of the document, in its order, repeated ones included."""
    return [row for line in document.splitlines() if (row := parse_row(line))]


def ids_of(test: str) -> list[str]:
    """Scenario ids in a test function's name."""
    known = set(IDS)
    return [part for part in test.split("_") if part in known]


def find_tests(folder: Path) -> dict[str, list[str]]:
    """Scenario id -> the tests below a folder that carry it, as `file::function`, sorted.

    Functions of suites that other modules inherit or import count where they are written.
    """
    found: dict[str, set[str]] = {}
    for path in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
                for scenario in ids_of(node.name):
                    found.setdefault(scenario, set()).add(f"{path.relative_to(folder)}::{node.name}")
    return {scenario: sorted(tests) for scenario, tests in found.items()}


def update(document: str, tests: Mapping[str, Iterable[str]]) -> str:
    """The document with its tests column filled from `tests`.

    A reason 'not yet' of a row that has tests becomes 'in part', until someone says that nothing is left open.
    """
    lines = []
    for line in document.splitlines():
        row = parse_row(line)
        if row is None:
            lines.append(line)
            continue
        names = "<br>".join(f"`{test}`" for test in tests.get(row.id, ()))
        still_open = re.sub("^not yet: ", "in part: ", row.still_open) if names else row.still_open
        lines.append(f"| {row.id} | {row.must_hold} | {names} | {still_open} |")
    return "\n".join(lines) + "\n"


def problems(rows: Iterable[Row], tests: Mapping[str, Iterable[str]]) -> list[str]:
    """What does not agree between the document and the tests, one sentence each."""
    listed = list(rows)
    ids = [row.id for row in listed]
    found = [f"{id} has no row" for id in IDS if id not in ids]
    found += [f"{id} has {ids.count(id)} rows" for id in sorted(set(ids)) if ids.count(id) > 1]
    found += [f"{id} is no known scenario" for id in ids if id not in IDS]
    for row in listed:
        exist = set(tests.get(row.id, ()))
        found += [f"{row.id} names {test}, which does not exist; run make scenarios" for test in set(row.tests) - exist]
        found += [f"{row.id} does not name {test}; run make scenarios" for test in exist - set(row.tests)]
        if not row.must_hold:
            found.append(f"{row.id} does not say what must hold")
        if not row.tests and not row.still_open.startswith("not yet: "):
            found.append(f"{row.id} has neither a test nor a reason 'not yet: ...'")
        if row.tests and row.still_open.startswith("not yet: "):
            found.append(f"{row.id} has tests; its last column may only say what they leave open ('in part: ...')")
    return found


def summary(rows: Iterable[Row]) -> str:
    """How many scenarios are covered, in part or not yet."""
    listed = list(rows)
    full = sum(1 for row in listed if row.tests and not row.still_open)
    part = sum(1 for row in listed if row.tests and row.still_open)
    return f"{full} covered, {part} in part, {len(listed) - full - part} not yet, of {len(listed)}"


def main(arguments: list[str]) -> int:
    """Update if asked, then print the problems and a summary; 1 if there are problems."""
    tests = find_tests(TESTS)
    if "--update" in arguments:
        DOCUMENT.write_text(update(DOCUMENT.read_text(), tests))
    rows = parse(DOCUMENT.read_text())
    found = problems(rows, tests)
    print("\n".join([*found, f"scenarios: {summary(rows)}"]))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
