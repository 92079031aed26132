"""Ends what a harness left behind when the harness itself was killed.

A guard is a small process that holds the read end of a pipe. The harness writes the process groups it starts and the
folders it makes; when the pipe closes without a goodbye, or the parent is gone, the guard kills the groups and removes
the folders. That covers SIGKILL of the harness, whole process groups, and systems other than Linux, none of which a
parent-death signal does.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path


class Guard:
    """Registers process groups and folders with a guard process of its own. Thread safe.

    ``close()`` only says goodbye: the owner has stopped its processes and removed its folders by then, and whatever it
    forgot is ended by the guard.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", __file__, str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # a Ctrl-C in the terminal is for the harness alone
        )

    def watch(self, group: int) -> None:
        """End process group ``group`` if the harness dies."""
        self._write(f"watch {group}")

    def release(self, group: int) -> None:
        """The group has ended; its number may be used again by others."""
        self._write(f"release {group}")

    def remove(self, folder: Path) -> None:
        """Delete ``folder`` if it still exists when the harness has gone."""
        self._write(f"remove {folder}")

    def keep(self, folder: Path) -> None:
        """Do not delete ``folder`` after all."""
        self._write(f"keep {folder}")

    def close(self) -> None:
        """Close the pipe and wait until the guard has ended what is still registered."""
        assert self._process.stdin is not None
        with self._lock, contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.wait(30)

    def _write(self, line: str) -> None:
        assert self._process.stdin is not None
        with self._lock:
            self._process.stdin.write(line.encode() + b"\n")
            self._process.stdin.flush()


def _serve(parent: int) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    groups: set[int] = set()
    folders: set[str] = set()
    pending = b""
    while True:
        # A forked child of the harness may hold the pipe open: the parent's id tells the truth then. What the parent
        # wrote before it died counts: it may have died before this process had begun to read.
        orphaned = os.getppid() != parent
        readable, _, _ = select.select([0], [], [], 0 if orphaned else 0.5)
        if not readable:
            if orphaned:
                break
            continue
        data = os.read(0, 65536)
        if not data:
            break
        *lines, pending = (pending + data).split(b"\n")
        for line in lines:
            word, _, value = line.decode().partition(" ")
            if word == "watch":
                groups.add(int(value))
            elif word == "release":
                groups.discard(int(value))
            elif word == "remove":
                folders.add(value)
            elif word == "keep":
                folders.discard(value)
    for group in groups:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)
    deadline = time.monotonic() + 5
    while any(_alive(group) for group in groups) and time.monotonic() < deadline:
        time.sleep(0.02)
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


def _alive(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


if __name__ == "__main__":
    _serve(int(sys.argv[1]))
