"""B5: commands per second that an idle worker process sends, over workers, partitions and versions."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial

from bench.report import OURS, Check, Result, Sample, Series
from bench.rig import CONCURRENCY, Case, Rig

TITLE = "idle cost"
PEERS = ()
WORKERS = "1,10,100"
SECONDS = "20"
PARTITIONS = (1, 8, 64)
VERSIONS = (1, 2)
SETTLE_SECONDS = 6.0


def run(rig: Rig) -> Result:
    """Measure. Options: ``workers`` (default 1,10,100) and ``seconds`` of each measurement (default 20)."""
    numbers = [int(text) for text in rig.options.get("workers", WORKERS).split(",")]
    seconds = float(rig.options.get("seconds", SECONDS))
    cases = [
        Case(
            OURS,
            f"workers {workers}, partitions {partitions}, versions {versions}",
            "commands/s and process",
            partial(idle, rig, workers, partitions, versions, seconds),
        )
        for workers in numbers
        for partitions in PARTITIONS
        for versions in VERSIONS
    ]
    series = rig.interleaved(cases)
    note = f"Commands as clients sent them (MONITOR, without those inside scripts), over {seconds:.0f} s."
    return rig.result("B5", TITLE, series, checks(series), [note])


def idle(rig: Rig, workers: int, partitions: int, versions: int, seconds: float) -> Sample:
    """Start the workers on an empty queue, let them settle, and count what they send."""
    rig.server.flush()
    parameters = {
        "url": rig.server.url,
        "concurrency": CONCURRENCY,
        "partitions": partitions,
        "versions": versions,
        "at_once": True,
    }
    with ExitStack() as stack:
        # The first one makes the queue; the others find it.
        running = [stack.enter_context(rig.ours.start("attend", parameters))]
        running[0].ready()
        running += [stack.enter_context(rig.ours.start("attend", parameters)) for _ in range(workers - 1)]
        for worker in running[1:]:
            worker.ready()
        time.sleep(SETTLE_SECONDS)
        commands = rig.server.commands_sent(seconds)
        running[0].go_on()
        rig.noted(rig.ours, "idle", running[0].outcome())
    return Sample(value=commands / seconds / workers, jobs=0, seconds=seconds)


def checks(series: Sequence[Series]) -> list[Check]:
    """Every cell below one command a second; the dearest cell within 0.5 of the cheapest, which is what flat means."""
    if not series:
        return []
    rates = [one.median for one in series]
    return [
        Check.of("most commands/s and process", max(rates), "<=", 1.0),
        Check.of("spread over all cells, commands/s and process", max(rates) - min(rates), "<=", 0.5),
    ]
