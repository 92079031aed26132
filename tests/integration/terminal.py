"""Runs the command line as a person does: at a terminal."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import time


def at_a_terminal(arguments: tuple[str, ...], prompt: str, answer: str) -> tuple[int, str]:
    """Run the command with a terminal of its own, and type ``answer`` at the prompt; its exit code and its output."""
    controller, terminal = pty.openpty()
    run = "runpy.run_module('headrace', run_name='__main__')"
    code = f"import fcntl, runpy, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); {run}"
    with subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        start_new_session=True,
    ) as process:
        os.close(terminal)
        shown, ends, typed = "", time.monotonic() + 90, False
        while time.monotonic() < ends:
            if select.select([controller], [], [], 0.1)[0]:
                try:
                    shown += os.read(controller, 4096).decode()
                except OSError:  # the terminal was closed by the last process that had it
                    break
            if prompt in shown and not typed:
                os.write(controller, answer.encode())
                typed = True
        os.close(controller)
        return process.wait(30), shown
