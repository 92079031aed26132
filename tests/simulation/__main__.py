"""Check the store protocol: every scenario and every mutant, or those whose names contain an argument.

Prints a line per scenario with the number of states, and the shortest trace of what breaks. Exit code 1 if anything
is not as expected.
"""

from __future__ import annotations

import sys
import time

from tests.simulation.checking import check
from tests.simulation.mutants import CAUGHT
from tests.simulation.rules import PROTOCOL
from tests.simulation.scenarios import LARGE, SMALL
from tests.simulation.world import Model, Setting, describe


def main(wanted: list[str]) -> int:
    """Run what was asked for; return the exit code."""
    failed = False
    for name, setting in {**SMALL, **LARGE}.items():
        if _selected(name, wanted):
            failed |= not _scenario(name, setting)
    for rule, (name, expected) in CAUGHT.items():
        if _selected(rule, wanted):
            found = check({**SMALL, **LARGE}[name], PROTOCOL._replace(**{rule: False}))
            caught = found.violation is not None and found.violation.startswith(expected)
            print(f"without {rule:26} {found.states:9,} states  {name}: {found.violation or 'NOT CAUGHT'}", flush=True)
            failed |= not caught
    return int(failed)


def _selected(name: str, wanted: list[str]) -> bool:
    return not wanted or any(part in name for part in wanted)


def _scenario(name: str, setting: Setting) -> bool:
    started = time.process_time()
    found = check(setting, limit=2_000_000)
    verdict = found.violation or ("holds" if found.complete else "holds as far as the limit of states")
    print(f"{name:42} {found.states:9,} states {time.process_time() - started:6.1f} s  {verdict}", flush=True)
    if found.violation:
        print(describe(Model(setting), found.trace), flush=True)
    return found.violation is None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
