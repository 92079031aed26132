"""One long-running program as a process group of its own, with a log file."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.cluster.guard import Guard


class Component:
    """A program that can be stopped and started again with the same arguments; its log is appended to."""

    def __init__(self, name: str, command: Sequence[str], *, log: Path, guard: Guard, env: Mapping[str, str]) -> None:
        self.name = name
        self.log = log
        self._command = list(command)
        self._guard = guard
        # What it writes for a moment, such as keys out of a kubeconfig, goes with its folder if it is killed.
        self._env = {"TMPDIR": str(log.parent)} | dict(env)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """Process id, None while it is not running."""
        return self._process.pid if self.running and self._process else None

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def exit_code(self) -> int | None:
        return self._process.poll() if self._process else None

    def start(self) -> None:
        """Start the program; raises RuntimeError if it is running already."""
        if self.running:
            raise RuntimeError(f"{self.name} is running already (pid {self.pid})")
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self._env,
                start_new_session=True,
            )
        self._guard.watch(self._process.pid)

    def signal(self, number: int) -> None:
        """Send a signal to the group, if it runs."""
        if self.running and self._process:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)

    def stop(self, *, grace: float = 10.0) -> None:
        """SIGTERM, then SIGKILL after ``grace`` seconds (0: SIGKILL at once). Returns when the process has ended."""
        if self._process is None:
            return
        if grace > 0:
            self.signal(signal.SIGTERM)
            self.signal(signal.SIGCONT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(grace)
        self.signal(signal.SIGKILL)
        self._process.wait()
        self._guard.release(self._process.pid)

    def tail(self, lines: int = 20) -> str:
        """The last lines of the log."""
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        return "\n".join(text.splitlines()[-lines:])
