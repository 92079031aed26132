"""Runs processes before whatever else a machine does: its own services take a processor for milliseconds at a time.

A process that is woken while another one has the processor waits until that one's turn is over, 3 ms and more on Linux.
Where every processor is in use, those turns are what a 99th percentile of a latency measures. `turns_of_others` tells
what a machine is like; `before_others` prevents it, for every subject alike.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

from bench.process_groups import with_groups

PROBE_SECONDS = 5.0
PAUSE_NS = 100_000
"""What is shorter is no turn of another process, but an interrupt."""


class Policy(NamedTuple):
    """How Linux schedules a thread: one of ``SCHED_*``, and the real-time priority, 0 for none."""

    name: int
    priority: int


REAL_TIME = Policy(os.SCHED_RR, 1)
"""Before all threads without real-time priority. Among equals a turn is 100 ms (``sched_rr_timeslice_ms``): a subject
whose own threads keep all processors busy may wait longer for itself than it would have for others."""


class Turns(NamedTuple):
    """What others took of busy processors: the ``share`` of their time, and the ``longest`` turn in ms."""

    share: float
    longest: float


def turns_of_others(seconds: float = PROBE_SECONDS) -> Turns:
    """Return what other processes take while one of ours keeps every processor busy for so long."""
    processors = sorted(os.sched_getaffinity(0))
    with ProcessPoolExecutor(len(processors), mp_context=get_context("forkserver")) as pool:
        probed = list(pool.map(_probe, processors, [seconds] * len(processors)))
    return Turns(sum(one.share for one in probed) / len(probed), max(one.longest for one in probed))


def _probe(processor: int, seconds: float) -> Turns:
    """Keep one processor busy; what this thread waits for in its run queue is what others take."""
    os.sched_setaffinity(0, {processor})
    begun = last = time.perf_counter_ns()
    before = waited = _waited_ns()
    end, longest = begun + round(seconds * 1e9), 0
    while last < end:
        now = time.perf_counter_ns()
        if now - last > PAUSE_NS:  # or the host of the machine, of which its processes know nothing
            so_far = _waited_ns()
            longest, waited = max(longest, so_far - waited), so_far
            now = time.perf_counter_ns()
        last = now
    return Turns((_waited_ns() - before) / (last - begun), longest / 1e6)


def _waited_ns() -> int:
    """Return how long this thread was ready and had no processor."""
    return int(Path("/proc/thread-self/schedstat").read_text().split()[1])


def may_come_first() -> bool:
    """Whether this process may give priority."""
    with ThreadPoolExecutor(1) as other:  # the thread that tries it has it from then on
        try:
            other.submit(_set, 0, REAL_TIME).result()
        except PermissionError:
            return False
    return True


@contextlib.contextmanager
def before_others(*processes: int) -> Iterator[None]:
    """Let these processes, and those in their groups, take a processor from all others within the context.

    Threads and processes that they start meanwhile inherit it, and keep it if they leave the groups. Afterwards all are
    scheduled as before, what is new as others are. Raises PermissionError, see `may_come_first`.
    """
    before: dict[int, Policy] = {}
    try:
        _everywhere(processes, lambda thread: REAL_TIME, before)
        yield
    finally:
        _everywhere(processes, lambda thread: before.get(thread, Policy(os.SCHED_OTHER, 0)), {})


def _everywhere(processes: tuple[int, ...], wanted: Callable[[int], Policy], before: dict[int, Policy]) -> None:
    """Schedule all threads as wanted, until there is none that began meanwhile; ``before`` learns how they were."""
    changed = True
    while changed:
        changed = False
        for process in with_groups(processes):
            for thread in _threads(process):
                with contextlib.suppress(ProcessLookupError):  # it has ended
                    had = Policy(os.sched_getscheduler(thread), os.sched_getparam(thread).sched_priority)
                    if had != wanted(thread):
                        before.setdefault(thread, had)
                        _set(thread, wanted(thread))
                        changed = True


def _threads(process: int) -> list[int]:
    try:
        return [int(thread.name) for thread in Path(f"/proc/{process}/task").iterdir()]
    except (FileNotFoundError, ProcessLookupError):  # it has ended
        return []


def _set(thread: int, policy: Policy) -> None:
    os.sched_setscheduler(thread, policy.name, os.sched_param(policy.priority))
