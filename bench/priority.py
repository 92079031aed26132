"""Runs processes before whatever else a machine does: its own services take a processor for milliseconds at a time.

A process that is woken while another one has the processor waits until that one's turn is over, 3 ms and more on Linux.
Where every processor is in use, those turns are what a 99th percentile of a latency measures. `turns_of_others` tells
what a machine is like; `first` prevents it, for every subject alike.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from bench.processes import with_groups

PROBE_SECONDS = 5.0
PAUSE_NS = 100_000
"""What is shorter is no turn of another process, but an interrupt."""


class Turns(NamedTuple):
    """What others took of busy processors: the ``share`` of their time, and the ``longest`` turn in ms."""

    share: float
    longest: float


def turns_of_others(seconds: float = PROBE_SECONDS) -> Turns:
    """Return what other processes take while one of ours keeps every processor busy for so long."""
    processors = len(os.sched_getaffinity(0))
    with ProcessPoolExecutor(processors) as pool:
        probed = list(pool.map(_probe, [seconds] * processors))
    return Turns(sum(one.share for one in probed) / processors, max(one.longest for one in probed))


def _probe(seconds: float) -> Turns:
    begun = last = time.perf_counter_ns()
    end, waited, longest = begun + round(seconds * 1e9), _waited_ns(), 0
    while last < end:
        now = time.perf_counter_ns()
        longest = max(longest, now - last)
        last = now
    return Turns((_waited_ns() - waited) / (last - begun), longest / 1e6 if longest > PAUSE_NS else 0.0)


def _waited_ns() -> int:
    """Return how long this thread was ready and had no processor."""
    return int(Path("/proc/thread-self/schedstat").read_text().split()[1])


def may_come_first() -> bool:
    """Whether this process may give priority."""
    with ThreadPoolExecutor(1) as other:  # the thread that tries it has it from then on
        try:
            other.submit(os.sched_setscheduler, 0, os.SCHED_RR, os.sched_param(1)).result()
        except PermissionError:
            return False
    return True


@contextlib.contextmanager
def first(*processes: int) -> Iterator[None]:
    """Give these processes, and those in their groups, a processor as soon as they want one, within the context.

    Threads and processes that they start meanwhile have it as well. Raises PermissionError, see `may_come_first`.
    """
    _schedule(processes, os.SCHED_RR, os.sched_param(1))
    try:
        yield
    finally:
        _schedule(processes, os.SCHED_OTHER, os.sched_param(0))


def _schedule(processes: tuple[int, ...], policy: int, parameter: os.sched_param) -> None:
    for process in with_groups(processes):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended
            for thread in Path(f"/proc/{process}/task").iterdir():
                with contextlib.suppress(ProcessLookupError):
                    os.sched_setscheduler(int(thread.name), policy, parameter)
