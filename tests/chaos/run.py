"""One chaos run: faults strike while jobs are enqueued; then everything is mended, comes to rest, and is judged."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable

from tests.chaos.faults import Fault, drawn, timeline
from tests.chaos.stage import Stage, Stream
from tests.chaos.verdict import Verdict, verdict


def run(stage: Stage, seed: int, seconds: float, say: Callable[[str], None] = lambda line: None) -> Verdict:
    """Let the faults of a seed strike for so many seconds. Raises TimeoutError if it does not come to rest."""
    stage.leader()
    dice, struck = random.Random(seed), dict[Fault, str]()
    began = time.monotonic()
    with Stream(stage.url) as stream:
        for at, fault, what in timeline(drawn(seed, seconds)):
            time.sleep(max(0.0, began + at - time.monotonic()))
            if what == "begin":
                struck[fault] = _begin(stage, fault, dice)
                say(f"{at:6.1f} s  {fault.kind} {struck[fault]} for {fault.seconds:.1f} s")
            else:
                _mend(stage, fault, struck[fault])
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


def _begin(stage: Stage, fault: Fault, dice: random.Random) -> str:
    """Let a fault strike; return whom."""
    match fault.kind:
        case "api":
            stage.stop_api()
        case "mongo gone":
            stage.mongo.kill()
        case "mongo frozen":
            stage.mongo.pause()
        case _:
            effects = stage.effects(-1)
            name = effects[-1].name if fault.leader and effects else dice.choice(sorted(stage.workers))
            number = {"kill": signal.SIGKILL, "freeze": signal.SIGSTOP, "end": signal.SIGTERM}[fault.kind]
            stage.workers[name].signal(number)
            return name
    return ""


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
