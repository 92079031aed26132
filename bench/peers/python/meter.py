"""What every Python subject measures with: standard library only, since it runs in every peer's own environment."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import random
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NoReturn

Parameters = dict[str, Any]
Report = dict[str, Any]

POLL_SECONDS = 0.001
SCHEDULE_BATCH = 500


STAMP = "t"
"""A payload that begins with it holds the time, in ns of the monotonic clock, from which its job could have started:
when it was enqueued, or when it becomes due."""

Due = tuple[int, str]
"""A job that becomes due: when, in whole ms of the wall clock since 1970, and its payload, stamped with that time."""


class Meter:
    """Takes the time from the start of the first of ``jobs`` handlers until nothing is left in the queue.

    Handlers call `started`, from any thread, with their payload. ``done`` is called once, when the last one has
    started; from then on, not before, the queue is asked whether all is acknowledged. With the parameter ``announce``
    the first handler prints ``ready``: the worker is up. With the parameter ``leave`` the measurement ends with the
    start of the last handler; what is scheduled for later stays in the queue.
    """

    def __init__(self, parameters: Parameters, done: Callable[[], object]) -> None:
        self.jobs = int(parameters["jobs"])
        self.first = 0.0
        self.leaves = bool(parameters.get("leave"))
        self._announce = bool(parameters.get("announce"))
        self._cpu = 0.0
        self._count = itertools.count(1)
        self._done = done
        self._delays_ms: list[float] = []

    def started(self, text: str) -> None:
        """Count one handler."""
        if text[0] == STAMP:
            self._delays_ms.append((time.monotonic_ns() - int(text[1:])) / 1e6)
        number = next(self._count)
        if number == 1:
            self._cpu = time.process_time()
            self.first = time.monotonic()
            if self._announce:
                print("ready", flush=True)
        if number == self.jobs:
            self._done()

    def report(self, **facts: Any) -> Report:
        """Return the outcome; call it when all is acknowledged, or has started if the rest is left."""
        last = time.monotonic()
        return {
            "jobs": self.jobs,
            "seconds": last - self.first,
            "cpu_seconds": time.process_time() - self._cpu,
            "values_ms": self._delays_ms,
            **facts,
        }


async def emptied(meter: Meter, left: Callable[[], Awaitable[int]]) -> None:
    """Wait until ``left`` returns 0, unless the rest is left."""
    while not meter.leaves and await left():  # noqa: ASYNC110 - what is awaited lies in Redis
        await asyncio.sleep(POLL_SECONDS)


def emptied_plainly(meter: Meter, left: Callable[[], int]) -> None:
    """Do as `emptied` does, with a plain function."""
    while not meter.leaves and left():
        time.sleep(POLL_SECONDS)


def payload(parameters: Parameters) -> str:
    """Return text that takes ``payload`` bytes (default 32) as JSON."""
    return "x" * (int(parameters.get("payload", 32)) - 2)


async def enqueued(
    parameters: Parameters,
    one: Callable[[str], Awaitable[object]],
    many: Callable[[str, int], Awaitable[object]] | None,
    **facts: Any,
) -> Report:
    """Enqueue ``jobs`` jobs in the wanted mode from one event loop and return the outcome.

    ``one`` enqueues a job with a payload; ``many`` enqueues so many in one call, None if there is no such call. Mode
    ``drip`` enqueues stamped jobs, with pauses of ``pause`` seconds on average between them.
    """
    jobs, mode, text = int(parameters["jobs"]), parameters["mode"], payload(parameters)
    if mode == "bulk" and many is None:
        return unsupported("no call that enqueues many", facts)
    cpu, begun = time.process_time(), time.monotonic()
    if mode == "single":
        for _ in range(jobs):
            await one(text)
    elif mode == "drip":
        for _ in range(jobs):
            await asyncio.sleep(_pause(parameters))
            await one(f"{STAMP}{time.monotonic_ns()}")
    elif mode == "concurrent":

        async def caller(count: int) -> None:
            for _ in range(count):
                await one(text)

        await asyncio.gather(*(caller(count) for count in _shares(jobs, int(parameters["callers"]))))
    elif many is not None:
        for count in _batches(jobs, int(parameters["bulk"])):
            await many(text, count)
    return _timed(jobs, begun, cpu, facts)


def enqueued_plainly(
    parameters: Parameters, one: Callable[[str], object], many: Callable[[str, int], object] | None, **facts: Any
) -> Report:
    """Do as `enqueued` does, with plain functions; concurrent callers are threads."""
    jobs, mode, text = int(parameters["jobs"]), parameters["mode"], payload(parameters)
    if mode == "bulk" and many is None:
        return unsupported("no call that enqueues many", facts)
    cpu, begun = time.process_time(), time.monotonic()
    if mode == "single":
        for _ in range(jobs):
            one(text)
    elif mode == "drip":
        for _ in range(jobs):
            time.sleep(_pause(parameters))
            one(f"{STAMP}{time.monotonic_ns()}")
    elif mode == "concurrent":

        def caller(count: int) -> None:
            for _ in range(count):
                one(text)

        threads = [
            threading.Thread(target=caller, args=(count,)) for count in _shares(jobs, int(parameters["callers"]))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    elif many is not None:
        for count in _batches(jobs, int(parameters["bulk"])):
            many(text, count)
    return _timed(jobs, begun, cpu, facts)


async def scheduled(parameters: Parameters, many: Callable[[Sequence[Due]], Awaitable[object]], **facts: Any) -> Report:
    """Enqueue ``jobs`` jobs that become due one by one, from ``after`` to ``after + span`` seconds from now.

    ``many`` enqueues some of them. Raises RuntimeError if the first is due before the last is enqueued.
    """
    dues = _dues(parameters)
    for begun in range(0, len(dues), SCHEDULE_BATCH):
        await many(dues[begun : begun + SCHEDULE_BATCH])
    return _in_time(dues, facts)


def scheduled_plainly(parameters: Parameters, one: Callable[[int, str], object], **facts: Any) -> Report:
    """Do as `scheduled` does, with a plain function for one job: when it is due, and its payload."""
    dues = _dues(parameters)
    for due_ms, text in dues:
        one(due_ms, text)
    return _in_time(dues, facts)


def serve(actions: dict[str, Callable[[Parameters], Report]]) -> None:
    """Do the action that the command line names and print its outcome as the last line."""
    action, parameters = sys.argv[1], json.loads(sys.argv[2])
    if action not in actions:
        report = unsupported(f"no action {action}", {"version": ""})
    else:
        report = actions[action](parameters)
    print(json.dumps(report), flush=True)


def unsupported(why: str, facts: Report) -> Report:
    """Return the outcome of an action that a subject does not have."""
    return {"jobs": 0, "seconds": 0.0, "cpu_seconds": 0.0, "unsupported": why, **facts}


def end(report: Report) -> NoReturn:
    """Print the outcome and end the process, whatever its other threads do."""
    print(json.dumps(report), flush=True)
    os._exit(0)


def _dues(parameters: Parameters) -> list[Due]:
    """Return the jobs in order. Whole ms, so that nobody's rounding counts as lateness."""
    jobs = int(parameters["jobs"])
    boot_ns = time.time_ns() - time.monotonic_ns()
    first, span = time.time_ns() // 10**6 + round(parameters["after"] * 1000), round(parameters["span"] * 1000)
    times = [first + number * span // jobs for number in range(jobs)]
    return [(due, f"{STAMP}{due * 10**6 - boot_ns}") for due in times]


def _in_time(dues: Sequence[Due], facts: Report) -> Report:
    if time.time() * 1000 >= dues[0][0]:
        raise RuntimeError(f"the first of {len(dues)} jobs was due before the last was enqueued")
    return {"jobs": len(dues), "seconds": 0.0, "cpu_seconds": 0.0, **facts}


def _timed(jobs: int, begun: float, cpu: float, facts: Report) -> Report:
    return {"jobs": jobs, "seconds": time.monotonic() - begun, "cpu_seconds": time.process_time() - cpu, **facts}


def _pause(parameters: Parameters) -> float:
    return float(parameters["pause"]) * random.uniform(0.5, 1.5)


def _shares(jobs: int, callers: int) -> list[int]:
    return [jobs // callers + (number < jobs % callers) for number in range(callers)]


def _batches(jobs: int, bulk: int) -> list[int]:
    return [min(bulk, jobs - begun) for begun in range(0, jobs, bulk)]
