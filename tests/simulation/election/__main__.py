"""Run the election on many seeds: ``python -m tests.simulation.election --seeds 1000 [--from 5000]``.

A seed that breaks a property is shrunk to the faults that it needs, and its trace is printed. ``--seed N`` replays one.
``--timings fast`` takes the other profile. Exit code 1 if anything broke.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time

from headrace.election.timings import FAST, STANDARD, Timings
from tests.simulation.election.faults import Plan, draw
from tests.simulation.election.run import Result, simulate


def shrink(plan: Plan, timings: Timings) -> Result:
    """Leave out every fault without which the run breaks too."""
    result = simulate(plan, timings=timings)
    for fault in plan.faults:
        smaller = result.plan.without(fault)
        found = simulate(smaller, timings=timings)
        if found.violations:
            result = found
    return result


def report(plan: Plan, timings: Timings) -> str:
    """What breaks, by which faults, and how."""
    result = shrink(plan, timings)
    faults = "\n".join(f"  {fault}" for fault in result.plan.faults)
    broken = "\n".join(result.violations[:5])
    return f"seed {plan.seed}\n{broken}\nfaults left of {len(plan.faults)}:\n{faults}\n{result.trace}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.election", description=__doc__)
    parser.add_argument("--seeds", type=int, default=300)
    parser.add_argument("--from", type=int, default=0, dest="first")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--timings", choices=("standard", "fast"), default="standard")
    chosen = parser.parse_args()
    timings = {"standard": STANDARD, "fast": FAST}[chosen.timings]
    logging.disable(logging.CRITICAL)
    if chosen.seed is not None:
        result = simulate(draw(chosen.seed), timings=timings)
        print(result.trace)
        print("\n".join(result.violations) or "all properties hold")
        return int(bool(result.violations))
    broken, writes, claims, seconds = 0, 0, 0, 0.0
    started = time.process_time()
    for seed in range(chosen.first, chosen.first + chosen.seeds):
        plan = draw(seed)
        result = simulate(plan, timings=timings)
        writes, claims, seconds = writes + result.writes, claims + result.claims, seconds + plan.seconds
        if result.violations:
            broken += 1
            print(report(plan, timings), flush=True)
    used = time.process_time() - started
    print(
        f"{chosen.seeds} seeds, {seconds / 3600:.1f} virtual hours, {claims} claims, {writes} accepted writes, "
        f"{broken} broken, {used:.1f} s"
    )
    return int(broken > 0)


if __name__ == "__main__":
    sys.exit(main())
