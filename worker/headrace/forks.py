"""Tells a process from those that it was forked off: what holds connections, or counts calls, is not shared by them.

Two processes that go on from one count would send different jobs under one nonce, and the second one's would be taken
for the first one's that are sent again.
"""

from __future__ import annotations

import os

from headrace.errors import HeadraceError


class _Forks:
    """How many forks lie between the first process and this one."""

    number = 0


def _forked() -> None:
    _Forks.number += 1


if hasattr(os, "register_at_fork"):  # not where nothing forks
    os.register_at_fork(after_in_child=_forked)


def this_process() -> int:
    """Return a number that a fork changes: a look at a variable, where the process id would be a system call."""
    return _Forks.number


def check_process(what: str, made_in: int) -> None:
    """Raise HeadraceError unless ``what`` was made in this process; ``made_in``: `this_process` of then."""
    if made_in != _Forks.number:
        raise HeadraceError(
            f"this {what} was made in another process, which this one was forked off; make one per process, after the "
            "fork"
        )
