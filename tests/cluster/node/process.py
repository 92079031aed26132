"""One local process group: started, signalled, waited for without blocking the loop."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.cluster.guard import Guard


class Group:
    """A process that leads its own group. When it ends, the rest of its group is killed, as a container's would be."""

    def __init__(
        self, command: Sequence[str], *, env: Mapping[str, str], folder: Path, log: Path, guard: Guard
    ) -> None:
        """Start it in ``folder`` with output appended to ``log``. Raises OSError if the command cannot be run."""
        self._guard = guard
        self._done = threading.Event()
        loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[int] = loop.create_future()
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                command,
                env=dict(env),
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        guard.watch(self.pid)
        # One thread per process: the loop may live in any thread, where child watchers of asyncio differ.
        threading.Thread(target=self._reap, args=(loop,), name=f"reap-{self.pid}", daemon=True).start()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def running(self) -> bool:
        return not self._done.is_set()

    async def wait(self) -> int:
        """The return code; negative is the signal that ended it. Cancelling the wait does not end the process."""
        return await asyncio.shield(self._ended)

    def signal(self, number: int) -> None:
        """Send a signal to the whole group; nothing happens once it has ended."""
        if self.running:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, number)

    def _reap(self, loop: asyncio.AbstractEventLoop) -> None:
        # Not reaped yet, so that the number of the group cannot belong to anybody else.
        os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        self._done.set()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        code = self._process.wait()
        self._guard.release(self.pid)
        loop.call_soon_threadsafe(self._ended.set_result, code)


async def run(
    command: Sequence[str], *, env: Mapping[str, str], folder: Path, log: Path, guard: Guard, timeout: float
) -> int | None:
    """Run a short command to its end; None if it took longer than ``timeout`` seconds and was killed."""
    group = Group(command, env=env, folder=folder, log=log, guard=guard)
    try:
        async with asyncio.timeout(timeout):
            return await group.wait()
    except TimeoutError:
        return None
    finally:
        group.signal(signal.SIGKILL)
        await group.wait()
