"""Someone who follows the documentation: runs its blocks as they stand, on a cluster and a Redis of the tests."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from tests.cluster.cluster import LocalCluster
from tests.docs.blocks import ROOT, Block

EXAMPLE_URL = "redis://127.0.0.1:6379/0"
"""How the pages call Redis; the only text of a block that is replaced."""


class Reader:
    """``application`` is a folder that Python finds modules in, here and in the Pods of the image ``emails``."""

    def __init__(self, cluster: LocalCluster, redis_url: str, application: Path) -> None:
        self.cluster = cluster
        self.redis_url = redis_url
        self.application = application

    @property
    def environment(self) -> dict[str, str]:
        tools = self.cluster.environment()
        return tools | {
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), tools["PATH"]]),
            "PYTHONPATH": f"{self.application}{os.pathsep}{ROOT}",
            "PYTHONWARNINGS": "error",
            "PYTHONUNBUFFERED": "1",
            "HEADRACE_REDIS_URL": self.redis_url,
        }

    def sh(self, block: Block, *, timeout: float = 180) -> str:
        """Run a shell block; every line must succeed. Returns what it printed."""
        return self._run(["bash", "-euo", "pipefail", "-c", self._text(block)], block, timeout)

    def python(self, block: Block, *, timeout: float = 180) -> str:
        """Run a Python block as a program of its own."""
        with tempfile.TemporaryDirectory() as folder:
            program = Path(folder) / "program.py"  # a file: a handler of it may run in another process
            program.write_text(self._text(block))
            return self._run([sys.executable, str(program)], block, timeout)

    def sh_until(self, block: Block, expected: str, *, timeout: float = 180) -> str:
        """Run a shell block whose last command goes on until it is stopped: stop it once it has printed ``expected``.

        Returns all that it printed.
        """
        process = subprocess.Popen(
            ["bash", "-euo", "pipefail", "-c", self._text(block)],
            cwd=ROOT,
            env=self.environment,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        overdue = threading.Timer(timeout, os.killpg, (process.pid, signal.SIGKILL))
        overdue.start()
        printed: list[str] = []
        assert process.stdout is not None
        try:
            for line in process.stdout:
                printed.append(line)
                if expected in line:
                    os.killpg(process.pid, signal.SIGTERM)
            process.wait()
        finally:
            overdue.cancel()
            process.stdout.close()
        output = "".join(printed)
        assert expected in output, f"{block}: {expected!r} was not printed:\n{output}"
        return output

    def logs(self, namespace: str, app: str) -> str:
        """Logs of all worker Pods of a Queue."""
        pods = self.cluster.pods(namespace, labels=f"headrace.dev/queue={app}")
        return "".join(self.cluster.node.logs(namespace, pod["metadata"]["name"]) for pod in pods)

    def wait_for_log(self, namespace: str, app: str, *expected: str, seconds: float = 180) -> None:
        end = time.monotonic() + seconds
        while missing := [text for text in expected if text not in self.logs(namespace, app)]:
            assert time.monotonic() < end, (
                f"not in the workers' logs: {missing}; they are:\n{self.logs(namespace, app)}"
            )
            time.sleep(0.2)

    def _text(self, block: Block) -> str:
        return re.sub(re.escape(EXAMPLE_URL), self.redis_url, block.text)

    def _run(self, command: list[str], block: Block, timeout: float) -> str:
        result = subprocess.run(
            command,
            cwd=ROOT,
            env=self.environment,
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=timeout,
            check=False,
        )
        assert result.returncode == 0, f"{block} ended with {result.returncode}:\n{result.stdout}"
        return result.stdout
