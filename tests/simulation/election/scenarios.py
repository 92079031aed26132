"""Named runs: what stops, and for how long nobody may write as leader."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.election.timings import FAST, STANDARD, Timings
from tests.simulation.election.faults import Fault, Plan


@dataclass(frozen=True)
class Scenario:
    """Faults that begin at second 60, when somebody has led for long."""

    faults: tuple[Fault, ...]
    timings: Timings = STANDARD
    slow: float = 0.01

    def plan(self, seed: int) -> Plan:
        # A slow leg stays below the time limit of a call, as the bound supposes.
        slowest = self.timings.call_timeout / 2
        return Plan(seed, self.faults, seconds=240, calm=80, drift=0.02, loss=0.0, slow=self.slow, slowest=slowest)


def everywhere(kind: str, store: str, seconds: float, at: float = 60.0) -> tuple[Fault, ...]:
    return (Fault(kind, at, store=store, seconds=seconds),)  # type: ignore[arg-type]


CRASH = tuple(Fault("crash", 60 + n * 1e-3, pod=n, seconds=120) for n in range(3))
"""Three of four, so that the leader is among them unless it is the fourth."""

SCENARIOS = {
    "leaders crash": Scenario(CRASH),
    "leaders crash, fast": Scenario(CRASH, FAST),
    "the API server is down": Scenario(everywhere("outage", "lease", 90)),
    "the API server refuses": Scenario(everywhere("refuse", "lease", 90)),
    "the API server is down, fast": Scenario(everywhere("outage", "lease", 90), FAST),
    "API server and MongoDB are down": Scenario(everywhere("outage", "lease", 90) + everywhere("outage", "mongo", 90)),
    "the API server is down, then MongoDB too": Scenario(
        everywhere("outage", "lease", 90) + everywhere("outage", "mongo", 50, at=90)
    ),
    "the API server is down, then MongoDB too, fast": Scenario(
        everywhere("outage", "lease", 90) + everywhere("outage", "mongo", 50, at=90), FAST
    ),
    "the API server is down, then the leaders crash": Scenario(everywhere("outage", "lease", 90, at=45) + CRASH),
    "two lose the API server, two lose MongoDB": Scenario(
        tuple(Fault("cut", 60, pod=n, store="lease" if n < 2 else "mongo", seconds=90) for n in range(4))
    ),
    "three lose Redis": Scenario(tuple(Fault("cut", 60, pod=n, store="redis", seconds=90) for n in range(3))),
    "everybody is asked to end, one after the other": Scenario(
        tuple(Fault("terminate", 60 + 12 * n, pod=n, seconds=1) for n in range(4))
    ),
}
