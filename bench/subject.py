"""A subject: a command run as a process of its own that does one thing and prints one line of JSON about it.

Every subject, ours and each peer, understands the same actions::

    COMMAND ACTION PARAMETERS

``PARAMETERS`` is a JSON object. The process writes an `Outcome` as its last line on standard output. Time runs on the
monotonic clock from the first job to the last one, without the start of the process.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import signal
import subprocess
import tempfile
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ValidationError

from tests.cluster.guard import Guard

DEADLINE = 600.0
READY_SECONDS = 180.0
ROOT = Path(__file__).resolve().parent.parent

Action = Literal["fill", "work", "enqueue", "schedule", "attend", "cycle", "lifecycle"]
"""``fill`` puts jobs into the queue, untimed, by the fastest way there is. ``work`` runs a worker until they are done.
``enqueue`` is timed; its parameter ``mode`` is ``bulk``, ``single``, ``concurrent`` or ``drip``. ``schedule`` enqueues
jobs that become due one by one. Every subject has these four, or says that it does not support one; the others are ours
alone, see `bench.ours`."""


class Outcome(BaseModel):
    """What a subject measured. ``seconds`` and ``cpu_seconds`` (of its process) are over the measured part."""

    jobs: int
    seconds: float
    cpu_seconds: float
    version: str
    settings: dict[str, Any] = {}
    unsupported: str | None = None
    first: float = 0.0
    """When the first handler started, on the system-wide monotonic clock; 0 where processes are not compared."""
    redis_cpu_seconds: float | None = None
    """Of the server's main thread, where the subject measured it itself."""
    values_ms: list[float] = []


@cache
def _guard() -> Guard:
    """What ends the subjects if this process is killed."""
    guard = Guard()
    atexit.register(guard.close)
    return guard


class SubjectError(RuntimeError):
    """A subject failed, did not end in time, or printed something else than an outcome."""


class Unsupported(SubjectError):
    """A subject has no such thing; the message says what it lacks."""


@dataclass(frozen=True)
class Subject:
    """A command, and the share of a benchmark's jobs that it is given (slow peers get fewer, or a run takes hours)."""

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    share: float = 1.0

    def jobs(self, wanted: int) -> int:
        """Return how many jobs this subject is given where ours gets ``wanted``."""
        return max(1, round(wanted * self.share))

    def start(self, action: Action, parameters: Mapping[str, object]) -> Running:
        """Start the process."""
        return Running(self, action, parameters)

    def run(self, action: Action, parameters: Mapping[str, object], *, deadline: float = DEADLINE) -> Outcome:
        """Run the process to its end, at most ``deadline`` seconds. Raises SubjectError."""
        with self.start(action, parameters) as running:
            return running.outcome(deadline)


class Running:
    """A process of a subject that has been started. Leaving the context ends it and all it started."""

    def __init__(self, subject: Subject, action: Action, parameters: Mapping[str, object]) -> None:
        self._name = f"{subject.name} {action}"
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed with the process
        self.process = subprocess.Popen(
            [*subject.command, action, json.dumps(dict(parameters))],
            cwd=ROOT,
            env={**os.environ, **subject.environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            start_new_session=True,
        )
        _guard().watch(self.process.pid)

    def __enter__(self) -> Running:
        return self

    def __exit__(self, *_: object) -> None:
        self._kill()
        self.process.wait()
        _guard().release(self.process.pid)
        for stream in (self.process.stdin, self.process.stdout, self._errors):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()

    def ready(self) -> None:
        """Wait for the line ``ready``: the worker is connected and waits. Raises SubjectError if it never comes."""
        overdue = threading.Timer(READY_SECONDS, self._kill)
        overdue.start()
        try:
            for line in self.process.stdout or ():
                if line.strip() == "ready":
                    return
        finally:
            overdue.cancel()
        raise SubjectError(f"{self._name} was not ready within {READY_SECONDS:.0f} s: {self._last_words()}")

    def go_on(self) -> None:
        """Send the line that a subject waits for after ``ready``."""
        if self.process.stdin is not None:
            self.process.stdin.write("go on\n")
            self.process.stdin.flush()

    def outcome(self, deadline: float = DEADLINE) -> Outcome:
        """Wait for the end and return what was measured."""
        try:
            output, _ = self.process.communicate(timeout=deadline)
        except subprocess.TimeoutExpired:
            raise SubjectError(f"{self._name} did not end within {deadline:.0f} s: {self._last_words()}") from None
        lines = output.strip().splitlines()
        if self.process.returncode != 0 or not lines:
            raise SubjectError(f"{self._name} ended with {self.process.returncode}: {self._last_words()}")
        try:
            return Outcome.model_validate_json(lines[-1])
        except ValidationError as error:
            raise SubjectError(f"{self._name} printed no outcome but {lines[-1]!r}: {error}") from error

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def _last_words(self) -> str:
        self._errors.seek(0)
        return " / ".join(self._errors.read().strip().splitlines()[-3:]) or "it said nothing"
