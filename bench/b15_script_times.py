"""B15: how long the server works on one script at its largest batch, beside a million scheduled and finished jobs."""

from __future__ import annotations

import asyncio
from pathlib import Path

from bench.ours.queue import run as run_loop
from bench.ours.scripts import LARGE, Walk
from bench.report import OURS, Check, Result, Sample, Series
from bench.rig import Rig, percentile, say
from bench.undisturbed import disturbances, undisturbed
from headrace.stores.redis import RedisStore

TITLE = "time of one script"
PEERS = ()
JOBS = 1_000_000
ROUNDS = 20
LIMIT_MS = 5.0


def run(rig: Rig) -> Result:
    """Measure and compare; the samples of a script are its calls, from all rounds."""
    jobs, rounds = rig.scaled(JOBS), int(rig.options.get("calls", ROUNDS))
    rig.server.flush()
    told = disturbances(rig)
    with undisturbed(rig):
        samples = run_loop(_walk(rig, jobs, rounds))
    series = [_series(name, times, jobs) for name, times in samples.items()]
    notes = [
        f"{jobs:,} jobs scheduled for tomorrow and {jobs:,} finished ones in the partition; 128-byte payloads.",
        "Time that the server's main thread was at work on the call, from its parsing to its reply. Each "
        "series begins with the first call, which compiles the script.",
        *told,
    ]
    return rig.result("B15", TITLE, series, checks(series), notes)


async def _walk(rig: Rig, jobs: int, rounds: int) -> dict[str, list[float]]:
    clock = MainThread(int(rig.server.info("server")["process_id"]))
    store = RedisStore(rig.server.url)
    try:
        walk = Walk(store, clock.worked)
        await walk.fill(jobs, jobs)
        say(f"    filled with {jobs:,} scheduled and {jobs:,} finished jobs")
        for _ in range(rounds):
            await walk.round()
        return walk.samples
    finally:
        await store.close()


class MainThread:
    """What the kernel says of a process' first thread: the load of the machine does not count."""

    def __init__(self, process: int) -> None:
        self._file = Path(f"/proc/{process}/task/{process}/schedstat")

    async def worked(self) -> float:
        """Return the seconds that it was at work so far, once it is at rest."""
        last = -1
        while (now := int(self._file.read_text().split()[0])) != last:
            last = now
            await asyncio.sleep(0.0005)
        return last / 1e9


def _series(name: str, times: list[float], jobs: int) -> Series:
    samples = [Sample(value=seconds * 1000, jobs=jobs) for seconds in times]
    return Series.of(OURS, name, "ms", samples)


def checks(series: list[Series]) -> list[Check]:
    """Each script by the time that 99 of 100 calls do not exceed."""
    found = []
    for one in series:
        p99 = percentile([sample.value for sample in one.samples], 0.99)
        found.append(Check.of(f"{one.case}, p99 ms", p99, "<=", LIMIT_MS, binding=one.case != LARGE))
    return found
