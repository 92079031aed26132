"""The operator as a process on this machine."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from tests.cluster.cluster import LocalCluster

COMMAND = Path(sys.executable).with_name("headrace-operator")


class OperatorProcess:
    """``headrace-operator`` with the administrator's kubeconfig; a context manager.

    It does not campaign unless ``environment`` says so: most tests have one operator, and many of them kill it.
    ``command``: what to run instead.
    """

    def __init__(
        self, cluster: LocalCluster, log: Path, *, command: Sequence[str | Path] = (COMMAND,), **environment: str
    ) -> None:
        self.log = log
        self._command = command
        # What it writes for a moment, such as keys out of a kubeconfig, goes with its folder if it is killed.
        own = {"HEADRACE_LEADER_ELECTION": "off", "TMPDIR": str(log.parent)}
        self._environment = cluster.environment() | own | environment
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Its process id. Raises RuntimeError if it was not started."""
        if self._process is None:
            raise RuntimeError("the operator does not run")
        return self._process.pid

    def start(self) -> None:
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(list(self._command), env=self._environment, stdout=log, stderr=log)

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal, such as SIGSTOP."""
        assert self._process is not None
        self._process.send_signal(number)

    def kill(self) -> None:
        """End it at once (SIGKILL); it can be started again."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(60)
            self._process = None

    def stop(self) -> int:
        """End it in order (SIGTERM); returns its exit code."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        code = self._process.wait(60)
        self._process = None
        return code

    def __enter__(self) -> OperatorProcess:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._process is not None:
                assert self._process.poll() is None, f"the operator ended by itself:\n{self.log.read_text()[-4000:]}"
                self.stop()
        finally:
            self.kill()
