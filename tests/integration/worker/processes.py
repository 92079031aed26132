"""Worker processes as they are started in a Pod, and what is to be seen of them from outside."""

from __future__ import annotations

import json
import os
import re
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.cluster.processes import Component
from tests.integration.worker.support import eventually

ROOT = Path(__file__).resolve().parents[3]
WRONG_CLOCK = Path(__file__).parent / "wrong_clock"
"""On the path of a process: its clock is TEST_CLOCK_AHEAD seconds ahead."""
Start = Callable[..., Component]


def notes(folder: Path) -> list[list[str]]:
    """What the handlers noted: [worker, what, job id, version:partition, attempt]."""
    path = folder / "notes"
    return [line.split() for line in path.read_text().splitlines()] if path.exists() else []


def stamps(folder: Path) -> dict[str, list[float]]:
    """When each job of the handler "stamp" ran, by `time.monotonic`."""
    path, found = folder / "stamps", defaultdict[str, list[float]](list)
    for line in path.read_text().splitlines() if path.exists() else ():
        job, at = line.split()
        found[job].append(float(at))
    return found


def told_lost(process: Component) -> int:
    """Runs that the process counted as lost, by its log."""
    text = process.log.read_text()
    counted = re.findall(r"result of (\d+) finished job|leases of (\d+) job", text)
    return sum(int(a or b) for a, b in counted)


async def ended(process: Component) -> int:
    await eventually(lambda: not process.running)
    assert process.exit_code is not None
    return process.exit_code


def cpu_seconds(pid: int) -> float:
    """CPU time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def noted(path: Path) -> list[dict[str, Any]]:
    """What handlers in processes of their own have left in a file."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def runs(pid: int) -> bool:
    """Whether a process runs; one that nobody has waited for yet does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
