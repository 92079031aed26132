"""Keeps away from measurements of milliseconds what a machine does by itself, and tells of it in the result."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from bench.priority import PROBE_SECONDS, before_others, may_come_first, turns_of_others
from bench.resident import IDLE_SECONDS, idle_page_us, resident
from bench.rig import Rig
from bench.subject import Running


@contextmanager
def undisturbed(rig: Rig, *workers: Running) -> Iterator[None]:
    """Keep server and workers in memory, and let them and whom the context starts come before all other processes.

    Whoever has no right to give priority measures without. Options: ``resident=no`` leaves the memory to the host of
    the machine, ``priority=no`` lets them wait like others.
    """
    processes = (rig.server.process, *(worker.process.pid for worker in workers))
    with ExitStack() as kept:
        if _wanted(rig, "priority") and may_come_first():
            kept.enter_context(before_others(*processes, os.getpid()))
        if _wanted(rig, "resident"):
            kept.enter_context(resident(*processes))
        yield


def disturbances(rig: Rig) -> list[str]:
    """Return for people what this machine does by itself, and whether it was kept away. Takes ten seconds."""
    turns = turns_of_others()
    came = "came before them" if _wanted(rig, "priority") and may_come_first() else "waited for them like others"
    kept = "kept in memory" if _wanted(rig, "resident") else "left to the host"
    return [
        f"While all processors were busy for {PROBE_SECONDS:g} s, other processes of the machine took "
        f"{turns.share:.1%} of them, up to {turns.longest:.1f} ms at a time; what was measured {came}.",
        f"Of pages that nobody touched for {IDLE_SECONDS:g} s one in a hundred took {idle_page_us():.0f} us to the "
        f"next touch; what was measured was {kept}.",
    ]


def _wanted(rig: Rig, option: str) -> bool:
    return rig.options.get(option) != "no"
