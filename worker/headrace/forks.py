"""Tells a process from those that it was forked off: what holds connections, or counts calls, is not shared by them.

Two processes that go on from one count would send different jobs under one nonce, and the second one's would be taken
for the first one's that are sent again.
"""

from __future__ import annotations

import os

from headrace.errors import HeadraceError


def this_process() -> int:
    """Return what a fork changes.

    The process id, although it is a system call: hooks for forks do not run if the caller of ``fork`` is written in C.
    """
    return os.getpid()


def check_process(what: str, made_in: int) -> None:
    """Raise HeadraceError unless ``what`` was made in this process; ``made_in``: `this_process` of then."""
    if made_in != this_process():
        raise HeadraceError(
            f"this {what} was made in another process, which this one was forked off; make one per process, after the "
            "fork"
        )
