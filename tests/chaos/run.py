"""One chaos run: faults strike while jobs are enqueued; then everything is mended, comes to rest, and is judged."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable

from tests.chaos.faults import Fault, Kind, Step, timeline
from tests.chaos.stage import Stage, Stream
from tests.chaos.verdict import Verdict, verdict

SIGNALS: dict[Kind, int] = {"kill": signal.SIGKILL, "freeze": signal.SIGSTOP, "end": signal.SIGTERM}
Told = Callable[[Fault, Step, str], None]


def run(
    stage: Stage,
    faults: list[Fault],
    seconds: float,
    dice: random.Random,
    told: Told = lambda fault, step, name: None,
) -> Verdict:
    """Let faults strike for so many seconds or more. Raises TimeoutError if it does not come to rest.

    ``told`` is called before each step, with the worker that it is about or ''; what follows waits for it.
    """
    stage.leader()
    struck: dict[Fault, str] = {}
    began = time.monotonic()
    with Stream(stage.url) as stream:
        for at, fault, step in timeline(faults):
            time.sleep(max(0.0, began + at - time.monotonic()))
            if step == "begin":
                struck[fault] = _whom(stage, fault, dice)
            told(fault, step, struck[fault])
            (_begin if step == "begin" else _mend)(stage, fault, struck[fault])
        time.sleep(max(0.0, began + seconds - time.monotonic()))
    stage.heal()
    stage.leader()  # somebody leads
    stage.until("every job ran", lambda: stage.runs().keys() >= set(stream.ids))
    ticks = _ticks(stage)
    stage.until("the schedule goes on", lambda: _ticks(stage) > ticks + 1)
    stage.until("the queue is empty", lambda: stage.live() == 0)
    for worker in stage.workers.values():
        worker.signal(signal.SIGTERM)
    stage.until("all workers ended", lambda: not any(worker.running for worker in stage.workers.values()))
    return verdict(stage.effects(), stage.refused(), stream.ids, stage.runs())


def _ticks(stage: Stage) -> int:
    return sum(1 for job in stage.runs() if job.startswith("tick@"))


def _whom(stage: Stage, fault: Fault, dice: random.Random) -> str:
    """Return the worker that a fault strikes, '' for one that strikes another part."""
    if fault.kind not in SIGNALS:
        return ""
    effects = stage.effects(-1)
    return effects[-1].name if fault.leader and effects else dice.choice(sorted(stage.workers))


def _begin(stage: Stage, fault: Fault, name: str) -> None:
    match fault.kind:
        case "api":
            stage.stop_api()
        case "mongo gone":
            stage.mongo.kill()
        case "mongo frozen":
            stage.mongo.pause()
        case _:
            stage.workers[name].signal(SIGNALS[fault.kind])


def _mend(stage: Stage, fault: Fault, name: str) -> None:
    match fault.kind:
        case "api":
            stage.start_api()
        case "mongo gone":
            stage.mongo.start()
        case "mongo frozen":
            stage.mongo.resume()
        case "freeze":
            stage.workers[name].signal(signal.SIGCONT)
        case _:
            stage.restart(name)
