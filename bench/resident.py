"""Keeps the memory of processes in the machine, where the host of a virtual machine takes away what lies idle.

Such a host takes pages that nobody has touched for a second or so, and gives each back at its next touch, which takes
the time of a hundred commands of Redis and more; the virtual machine knows nothing of it and counts no page fault. Who
measures milliseconds in a queue with a million jobs at rest would measure that. `idle_page_us` tells whether a machine
is one of those; `resident` prevents it, for every subject alike.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from bench.process_groups import with_groups

PASS_SECONDS = 0.5
CHUNK_BYTES = 16 << 10
"""Small: reading within the kernel keeps others from that processor until all of a chunk's pages are back."""
PROBED_PAGES = 4000
IDLE_SECONDS = 5.0


def idle_page_us(seconds: float = IDLE_SECONDS) -> float:
    """Return the 99th percentile of the first touch of a page that nobody touched for so long, in microseconds.

    Some microseconds are what it takes anywhere.
    """
    page = mmap.PAGESIZE
    with mmap.mmap(-1, PROBED_PAGES * page) as memory:
        for number in range(PROBED_PAGES):
            memory[number * page] = 1
        time.sleep(seconds)
        order = random.sample(range(PROBED_PAGES), PROBED_PAGES)
        taken = []
        for number in order:
            begun = time.perf_counter_ns()
            memory[number * page]
            taken.append(time.perf_counter_ns() - begun)
    return sorted(taken)[PROBED_PAGES * 99 // 100] / 1000


@contextlib.contextmanager
def resident(*processes: int) -> Iterator[None]:
    """Read all memory of these processes, and of those in their process groups, twice a second within the context.

    By a thread that runs only while a processor has nothing else to do.
    """
    ended = threading.Event()
    reader = threading.Thread(target=_read_until, args=(ended, processes), name="resident")
    reader.start()
    try:
        yield
    finally:
        ended.set()
        reader.join()


def _read_until(ended: threading.Event, processes: tuple[int, ...]) -> None:
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))  # of this thread alone
    buffer = memoryview(bytearray(CHUNK_BYTES))
    while not ended.wait(PASS_SECONDS):
        for process in with_groups(processes):
            with contextlib.suppress(OSError):  # it has ended
                _read(process, buffer, ended)


def _read(process: int, buffer: memoryview, ended: threading.Event) -> None:
    with Path(f"/proc/{process}/mem").open("rb", buffering=0) as memory:
        for begin, end in _mappings(process):
            at = begin
            while at < end and not ended.is_set():
                try:
                    at += os.preadv(memory.fileno(), [buffer[: end - at]], at) or end
                except OSError:  # a mapping that has no memory
                    break


def _mappings(process: int) -> Iterator[tuple[int, int]]:
    """Yield begin and end of what the process may read."""
    for line in Path(f"/proc/{process}/maps").read_text().splitlines():
        addresses, rights, *_ = line.split()
        if rights.startswith("r") and "[v" not in line:
            begin, _, end = addresses.partition("-")
            yield int(begin, 16), int(end, 16)
