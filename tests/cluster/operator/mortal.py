"""An operator that is killed (SIGKILL) right after each of its steps, and started again; ``python -m`` runs it.

Each life is a process of its own, forked from one that has only imported the operator. Every other life may settle
first, as each does when it begins: else it would end with nothing done.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import sys
from typing import Any

from headrace_operator import steps
from headrace_operator.logs import configure_logging
from headrace_operator.running import run
from headrace_operator.settings import OperatorSettings

PARENT_DIED = 1
"""PR_SET_PDEATHSIG."""


def live(number: int) -> None:
    """One life."""

    async def die(step: steps.Step) -> None:
        if number % 2 == 0 or not isinstance(step, steps.Settle):
            os.write(2, f"killed after {type(step).__name__} {getattr(step, 'version', '')}\n".encode())
            os.kill(os.getpid(), signal.SIGKILL)

    ctypes.CDLL(None).prctl(PARENT_DIED, signal.SIGKILL)
    settings = OperatorSettings()
    configure_logging(settings)
    asyncio.run(run(settings, after_step=die))


def main() -> None:
    """Start one life after the other until SIGTERM."""
    child = 0

    def end(*_: Any) -> None:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        sys.exit(0)

    number = 0
    while True:
        number += 1
        child = os.fork()
        if child == 0:
            live(number)
            os._exit(0)
        signal.signal(signal.SIGTERM, end)
        _, status = os.waitpid(child, 0)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        if not os.WIFSIGNALED(status):
            sys.exit("an operator ended by itself")


if __name__ == "__main__":
    main()
