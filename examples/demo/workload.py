"""The work: one job for each source file of the Python standard library."""

from __future__ import annotations

import hashlib
import sysconfig
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from headrace import JobSpec


@dataclass(frozen=True, slots=True)
class Measure:
    """What is computed of one file."""

    size: int
    lines: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Source:
    """One file: its path below the tree, its compressed text, and the result computed here, without any queue."""

    path: str
    packed: bytes
    expected: Measure

    def job(self, delay: float | None = None) -> JobSpec:
        """Return the job that measures this file, ``delay`` seconds from its enqueue."""
        return JobSpec("measure", self.packed, id=self.path, delay=delay)


@dataclass(frozen=True, slots=True)
class Plan:
    """The files in the order in which they are sent: at once, delayed, then after the version bump."""

    now: list[Source]
    delayed: list[Source]
    after: list[Source]

    @property
    def files(self) -> list[Source]:
        """All of them."""
        return [*self.now, *self.delayed, *self.after]


def source_tree(root: Path | None = None) -> Iterator[Source]:
    """Yield the ``*.py`` files below ``root`` (default: the standard library), without installed packages."""
    root = root or Path(sysconfig.get_path("stdlib"))
    for path in sorted(root.rglob("*.py")):
        name = path.relative_to(root)
        # A job's id takes 200 bytes.
        if {"site-packages", "dist-packages"} & set(name.parts) or len(str(name).encode()) > 200:
            continue
        with path.open("rb") as file:
            lines = sum(1 for _ in file)
            file.seek(0)
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        yield Source(str(name), zlib.compress(path.read_bytes()), Measure(path.stat().st_size, lines, digest))


def split(files: list[Source], delayed_share: float = 0.25) -> Plan:
    """Halve the files, alternating, and put off ``delayed_share`` of the first half."""
    first, after = files[::2], files[1::2]
    cut = round(len(first) * (1 - delayed_share))
    return Plan(first[:cut], first[cut:], after)


def delays(count: int, first: float, last: float) -> list[float]:
    """Return ``count`` delays in seconds, spread evenly from ``first`` to ``last``."""
    step = (last - first) / max(1, count - 1)
    return [first + number * step for number in range(count)]
