"""Which processes belong to a subject: whatever it starts is in the group that its first process leads."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path


def with_groups(processes: tuple[int, ...]) -> Iterator[int]:
    """Yield the processes, and all whose process group is called like one of them."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            group = int((entry / "stat").read_text().rpartition(")")[2].split()[2])
            if group in processes or int(entry.name) in processes:
                yield int(entry.name)
