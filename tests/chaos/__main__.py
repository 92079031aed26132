"""Real workers under faults: ``make chaos ARGS="--seconds 600 --seed 7"``.

Exit code 1 if two leaders overlapped, or a job was lost.
Workers are killed, frozen and asked to end; the API server and MongoDB stop, freeze and come back. Redis lives: what it
loses is lost for leaders too.
"""

from __future__ import annotations

import argparse
import random
import sys
import time

from tests.chaos.faults import Fault, Step, drawn
from tests.chaos.run import run
from tests.chaos.stage import Stage
from tests.services.redis import RedisServer, flavours


def say(fault: Fault, step: Step, name: str) -> None:
    """Print each fault when it strikes."""
    if step == "begin":
        print(f"{fault.at:6.1f} s  {fault.kind} {name} for {fault.seconds:.1f} s", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600, help="how long faults strike (default 600)")
    parser.add_argument("--seed", type=int, default=round(time.time()), help="of the faults (default: the time)")
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--profile", choices=("fast", "standard", "relaxed"), default="fast")
    chosen = parser.parse_args()
    print(f"seed {chosen.seed}", flush=True)
    with (
        RedisServer(flavours()[0]) as server,
        Stage(server.url, workers=chosen.workers, profile=chosen.profile) as stage,
    ):
        faults = drawn(chosen.seed, chosen.seconds)
        found = run(stage, faults, chosen.seconds, random.Random(chosen.seed), say)
    print(f"{chosen.seconds:.0f} s of seed {chosen.seed}: {'sound' if found.sound else 'BROKEN'}\n{found}")
    return int(not found.sound)


if __name__ == "__main__":
    sys.exit(main())
