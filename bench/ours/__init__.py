"""Headrace as a subject: the same actions as the peers, by the public interface of the library."""

from __future__ import annotations

import sys

from bench.report import OURS
from bench.subject import Subject


def subject() -> Subject:
    """Return our side, run with the interpreter of this process."""
    return Subject(OURS, (sys.executable, "-m", "bench.ours"))
