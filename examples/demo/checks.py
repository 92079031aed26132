"""What must hold at the end, as functions of what was found."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from examples.demo.workload import Measure, Source
from headrace.stores.base import Counts


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that must hold: ``problem`` is empty if it does."""

    claim: str
    problem: str = ""

    @property
    def holds(self) -> bool:
        """Whether it holds."""
        return not self.problem


def check_results(files: Iterable[Source], results: Mapping[str, Mapping[str, Any]]) -> Check:
    """Every file has a result, equal to the one computed directly, and there is no other result."""
    expected = {file.path: file.expected for file in files}
    found = {path: _measure(result) for path, result in results.items()}
    claim = f"{len(expected)} files, {len(found)} results, equal to a direct computation"
    lost = expected.keys() - found.keys()
    foreign = found.keys() - expected.keys()
    wrong = [path for path in expected.keys() & found.keys() if expected[path] != found[path]]
    return Check(claim, _listed({"lost": lost, "not asked for": foreign, "wrong": wrong}))


def check_runs(files: Iterable[Source], runs: Mapping[str, int]) -> Check:
    """Every job ran to its end exactly once."""
    counts = {file.path: runs.get(file.path, 0) for file in files}
    return Check(
        "every job ran exactly once",
        _listed(
            {
                "never": [path for path, count in counts.items() if count == 0],
                "more than once": [path for path, count in counts.items() if count > 1],
            }
        ),
    )


def check_versions(jobs: Mapping[int, int]) -> Check:
    """Both versions ran jobs."""
    idle = [version for version in (1, 2) if not jobs.get(version)]
    claim = f"both versions ran jobs: v1 {jobs.get(1, 0)}, v2 {jobs.get(2, 0)}"
    return Check(claim, "".join(f"v{version} ran none; " for version in idle).rstrip("; "))


def check_tombstones(old: Iterable[Counts], keys: Iterable[str], hints: Iterable[str], version: int) -> Check:
    """Nothing of ``version`` is left but one tombstone per partition: ``keys`` of it, and ``hints`` of the queue."""
    states = [count.state for count in old]
    problems = []
    if alive := [f"partition {number} is {state}" for number, state in enumerate(states) if state != "tombstone"]:
        problems.append(", ".join(alive))
    if more := sorted(key for key in keys if not key.endswith("}:meta")):
        problems.append(f"keys left: {', '.join(more[:5])}")
    if pointing := [hint for hint in hints if hint.startswith(f"{version}:")]:
        problems.append(f"hints left: {', '.join(pointing[:5])}")
    return Check(f"nothing left of v{version} in Redis but {len(states)} tombstones", "; ".join(problems))


def check_empty(active: Iterable[Counts], version: int) -> Check:
    """The active version holds no job."""
    left = [f"partition {number}: {count.nonempty()}" for number, count in enumerate(active) if count.nonempty()]
    return Check(f"no job left in v{version}", "; ".join(left))


def _measure(value: Mapping[str, Any]) -> Measure:
    return Measure(value["size"], value["lines"], value["sha256"])


def _listed(problems: Mapping[str, Iterable[str]]) -> str:
    parts = []
    for name, paths in problems.items():
        found = sorted(paths)
        if found:
            parts.append(f"{len(found)} {name} ({', '.join(found[:3])}{', ...' if len(found) > 3 else ''})")
    return "; ".join(parts)
