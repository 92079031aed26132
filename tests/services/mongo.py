"""A server that speaks the MongoDB protocol: the one named by HEADRACE_TEST_MONGO_URL, else FerretDB on SQLite."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import tempfile
import time
from pathlib import Path

from tests.cluster import binaries
from tests.cluster.guard import Guard
from tests.cluster.ports import free_ports
from tests.cluster.processes import Component

START_SECONDS = 60.0
URL_VARIABLE = "HEADRACE_TEST_MONGO_URL"


class FerretServer:
    """FerretDB on a loopback port that stays the same over restarts; its data stay until `close`.

    Its updates are not atomic, and it ignores read and write concerns: it proves what a client sends and understands,
    never mutual exclusion.
    """

    def __init__(self, guard: Guard) -> None:
        self.port = free_ports(1)[0]
        self._guard = guard
        self.folder = Path(tempfile.mkdtemp(prefix="headrace-ferretdb-"))
        guard.remove(self.folder)
        (self.folder / "data").mkdir()
        program = binaries.ensure(["ferretdb"])["ferretdb"]
        self._process = Component(
            "ferretdb",
            [
                str(program),
                f"--listen-addr=127.0.0.1:{self.port}",
                "--handler=sqlite",
                f"--sqlite-url=file:{self.folder / 'data'}/",
                f"--state-dir={self.folder}",
                "--telemetry=disable",
                "--debug-addr=-",
                "--log-level=warn",
            ],
            log=self.folder / "server.log",
            guard=guard,
            env={"PATH": os.environ.get("PATH", ""), "HOME": str(self.folder), "DO_NOT_TRACK": "1"},
        )

    @property
    def url(self) -> str:
        return f"mongodb://127.0.0.1:{self.port}/headrace"

    def start(self) -> None:
        """Start it and wait until it listens. Raises RuntimeError with its last words if it does not."""
        self._process.start()
        deadline = time.monotonic() + START_SECONDS
        while not self._listens():
            if not self._process.running or time.monotonic() > deadline:
                words = self._process.tail()
                self._process.stop(grace=0)
                raise RuntimeError(f"ferretdb on port {self.port} did not start:\n{words}")
            time.sleep(0.02)

    def _listens(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1):
                return True
        except OSError:
            return False

    def kill(self) -> None:
        """End it at once; it can be started again."""
        self._process.stop(grace=0)

    def pause(self) -> None:
        """Freeze it: connections stay open and nothing is answered."""
        self._process.signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on after `pause`."""
        self._process.signal(signal.SIGCONT)

    def close(self) -> None:
        """End it and remove its folder."""
        self._process.stop(grace=0)
        shutil.rmtree(self.folder, ignore_errors=True)
        self._guard.keep(self.folder)
