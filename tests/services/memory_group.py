"""A control group with little memory, where the kernel kills what takes too much of it."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

LIMITS = {
    "v1": (Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes", "memory.memsw.limit_in_bytes"),
    "v2": (Path("/sys/fs/cgroup"), "memory.max", "memory.swap.max"),
}


class MemoryGroup:
    """A group with ``limit`` bytes. Where none can be made, for want of root or by the host, the test is skipped."""

    def __init__(self, name: str, limit: int) -> None:
        version = "v2" if (LIMITS["v2"][0] / "cgroup.controllers").exists() else "v1"
        top, memory, swap = LIMITS[version]
        self._path = top / name
        try:
            self._path.mkdir()
            (self._path / memory).write_text(str(limit))
        except OSError as error:
            if self._path.exists():
                self._path.rmdir()
            pytest.skip(f"no control group with a memory limit can be made here ({error})")
        swapped = "0" if version == "v2" else str(limit)
        if (self._path / swap).exists():
            (self._path / swap).write_text(swapped)

    def add(self, pid: int) -> None:
        """Move a process into the group; what it starts from now on is in it, too."""
        (self._path / "cgroup.procs").write_text(str(pid))

    def __enter__(self) -> MemoryGroup:
        return self

    def __exit__(self, *_: object) -> None:
        ends = time.monotonic() + 60
        while True:  # a killed process leaves the group a moment later
            try:
                os.rmdir(self._path)
                return
            except OSError:
                if time.monotonic() > ends:
                    raise
                time.sleep(0.02)
