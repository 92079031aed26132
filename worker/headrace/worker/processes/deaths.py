"""How a process ended, in words: signal or exit code, whether memory ran out, and where."""

from __future__ import annotations

import os
import signal
import socket
from pathlib import Path

from headrace.errors import ProcessDied

_CGROUPS = Path("/sys/fs/cgroup")


def death(return_code: int, out_of_memory: bool) -> ProcessDied:
    """Return the error of a process that ended while it ran a handler; ``return_code`` < 0: by that signal."""
    if return_code >= 0:
        return ProcessDied(f"ended with exit code {return_code}{_where()}", return_code)
    number = -return_code
    try:
        name = signal.Signals(number).name
    except ValueError:
        name = f"signal {number}"
    how = f"was killed by {name} (exit code {128 + number}){': out of memory' if out_of_memory else ''}{_where()}"
    return ProcessDied(how, 128 + number, name, out_of_memory=out_of_memory)


def _where() -> str:
    node = os.environ.get("NODE_NAME")
    return f" on {os.environ.get('POD_NAME') or socket.gethostname()}{f', node {node}' if node else ''}"


class MemoryKills:
    """Tells whether the kernel killed a process of this control group because its memory ran out.

    It counts such kills; each explains one death.
    """

    def __init__(self) -> None:
        self._seen = _memory_kills()
        self._unexplained = 0

    def explain(self, return_code: int) -> bool:
        """Whether one of them explains a process that ended with ``return_code`` just now."""
        kills = _memory_kills()
        self._unexplained += max(0, kills - self._seen)
        self._seen = kills
        if return_code != -signal.SIGKILL or not self._unexplained:
            return False
        self._unexplained -= 1
        return True


def _memory_kills() -> int:
    """Return the kills counted so far; 0 where that cannot be known."""
    for events in _events_files():
        try:
            lines = events.read_text().splitlines()
        except OSError:
            continue
        return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)
    return 0


def _events_files() -> list[Path]:
    """Return where the events of this control group may be: of the unified hierarchy, or of the older one."""
    try:
        groups = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return []
    files = []
    for line in groups:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            files += [_CGROUPS / path.lstrip("/") / "memory.events", _CGROUPS / "memory.events"]
        elif "memory" in controllers.split(","):
            # In a container the path is that of the host, and its own group is mounted at the top.
            files += [_CGROUPS / "memory" / each / "memory.oom_control" for each in (path.lstrip("/"), "")]
    return files
