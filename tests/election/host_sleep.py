"""A host that sleeps, as one process sees it: Linux' own clocks say that the machine was suspended.

While a machine sleeps CLOCK_BOOTTIME goes on and CLOCK_MONOTONIC stands still. A process that enters a time namespace
whose CLOCK_BOOTTIME is ahead sees just that, from one call to the next, and nothing else of the machine changes. A
process with threads may not enter one. The namespace belongs to a user namespace of its own: no root is needed.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tests.cluster.guard import Guard

CLONE_NEWUSER, CLONE_NEWTIME = 0x10000000, 0x80


@contextlib.contextmanager
def slept(seconds: int, guard: Guard) -> Iterator[int]:
    """Make namespaces in which the machine has slept for ``seconds``; gives the id of a process that is in them."""
    command = ["unshare", "--user", "--map-root-user", "--time", "--boottime", str(seconds), "sh", "-c", "echo; cat"]
    keeper = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
    guard.watch(keeper.pid)
    assert keeper.stdin is not None
    assert keeper.stdout is not None
    try:
        if not keeper.stdout.readline():
            raise RuntimeError(f"`{' '.join(command)}` failed: it needs util-linux 2.36, Linux 5.6 and user namespaces")
        yield keeper.pid
    finally:
        keeper.stdin.close()
        keeper.wait(10)
        keeper.stdout.close()
        guard.release(keeper.pid)


def fall_asleep_and_wake(pid: int) -> None:
    """Let the machine have slept, for this process, as in the namespaces of process ``pid``. Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    for name, kind in (("user", CLONE_NEWUSER), ("time_for_children", CLONE_NEWTIME)):
        namespace = os.open(Path("/proc", str(pid), "ns", name), os.O_RDONLY)
        try:
            if libc.setns(namespace, kind) != 0:
                raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), f"setns: {name} of process {pid}")
        finally:
            os.close(namespace)
