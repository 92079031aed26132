"""Check the store protocol: every scenario and every mutant, or those whose names contain an argument.

As many at once as there are processors. Prints a line per scenario with the number of states, and the shortest trace of
what breaks. Exit code 1 if anything is not as expected.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import NamedTuple

from tests.simulation.checking import check
from tests.simulation.mutants import CAUGHT, CAUGHT_TOGETHER
from tests.simulation.rules import PROTOCOL
from tests.simulation.scenarios import LARGE, SMALL
from tests.simulation.world import Model, describe

SCENARIOS = {**SMALL, **LARGE}
LIMIT = 3_000_000
"""States of one scenario, which take about 3 GB of memory."""


class Verdict(NamedTuple):
    """What was found, for people, and whether it was expected."""

    text: str
    expected: bool


def main(wanted: Sequence[str]) -> int:
    """Run what was asked for; return the exit code."""
    began, verdicts = time.monotonic(), []
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        running = [pool.submit(scenario, name) for name in SCENARIOS if _selected(name, wanted)]
        mutants = [*(((rule,), caught) for rule, caught in CAUGHT.items()), *CAUGHT_TOGETHER.items()]
        for rules, (name, breaks) in mutants:
            if _selected(" ".join(rules), wanted):
                running.append(pool.submit(mutant, rules, name, breaks))
        for done in as_completed(running):
            verdicts.append(done.result())
            print(verdicts[-1].text, flush=True)
    wrong = sum(not verdict.expected for verdict in verdicts)
    print(f"{len(verdicts)} checked in {time.monotonic() - began:,.0f} s, {wrong} not as expected", flush=True)
    return int(wrong > 0)


def _selected(name: str, wanted: Sequence[str]) -> bool:
    return not wanted or any(part in name for part in wanted)


def scenario(name: str) -> Verdict:
    """Check that the protocol holds in a scenario, as far as `LIMIT` goes."""
    started = time.process_time()
    found = check(SCENARIOS[name], limit=LIMIT)
    verdict = found.violation or ("holds" if found.complete else "holds as far as the limit of states")
    text = f"{name:50} {found.states:9,} states {time.process_time() - started:6.1f} s  {verdict}"
    if found.violation:
        text += "\n" + describe(Model(SCENARIOS[name]), found.trace)
    return Verdict(text, found.violation is None)


def mutant(rules: tuple[str, ...], name: str, breaks: str) -> Verdict:
    """Check that a scenario breaks without the rules, and how."""
    found = check(SCENARIOS[name], PROTOCOL._replace(**dict.fromkeys(rules, False)), limit=LIMIT)
    caught = found.violation is not None and found.violation.startswith(breaks)
    without = f"without {' and '.join(rules)}"
    return Verdict(f"{without:50} {found.states:9,} states  {name}: {found.violation or 'NOT CAUGHT'}", caught)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
