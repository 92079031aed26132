"""The command that `make bench` uses, for one small round of ours."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from bench.report import Result

ROOT = Path(__file__).resolve().parents[2]


def run_bench(folder: Path, *arguments: str, timeout: float = 100) -> Result:
    """Run a benchmark without peers; returns the result that it wrote into ``folder`` and showed."""
    command = [sys.executable, "-m", "bench", *arguments, "--rounds", "1", "--no-peers", "--output", str(folder)]
    done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True, timeout=timeout)
    assert done.returncode == 0, done.stderr
    (data,) = folder.glob("*.json")
    found = Result.model_validate_json(data.read_text())
    assert done.stdout.startswith(data.with_suffix(".md").read_text())
    return found
