"""The long form: ``make twins`` runs 1,000 new random examples of each machine on each server, or as many as told.

Prints the commands that led to a difference, and ends with exit code 1 then.
"""

from __future__ import annotations

import sys
import time

from tests.conformance.twins.run import OneVersion, WholeStore, run
from tests.services.redis import RedisServer, flavours


def main(arguments: list[str]) -> int:
    """Run all of it; return the exit code."""
    examples, steps = (int(number) for number in (arguments + ["1000", "80"][len(arguments) :]))
    for flavour in flavours():
        with RedisServer(flavour) as server:
            for machine in (WholeStore, OneVersion):
                began = time.monotonic()
                try:
                    run(machine, server, examples=examples, steps=steps, derandomize=False)
                except AssertionError as error:
                    print(f"{machine.__name__} on {flavour}: {error}", *getattr(error, "__notes__", []), sep="\n")
                    return 1
                took = time.monotonic() - began
                print(
                    f"{machine.__name__:12} {flavour:8} {examples:,} x {steps} steps {took:6.1f} s  the same",
                    flush=True,
                )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
