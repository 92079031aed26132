"""Whether a worker should be restarted, and whether it works now: pure decisions from what is measured of it.

Liveness asks whether jobs are looked for and leases kept, not whether the store answers: a restart repairs the first.
"""

from __future__ import annotations

from dataclasses import dataclass

from headrace.worker.health import Health
from headrace.worker.leases import Execution, copied

STALLED_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Vitals:
    """Ages and durations in seconds.

    ``claim_cycle``: since the claim loop did what it should; ``claim_unanswered``: since the oldest claim that has had
    no answer yet; ``lease_cycle``: since the lease keeper did what it should;
    ``loop_blocked``: for how long the handlers' event loop has not moved; ``stuck``: see `stuck_seconds`.
    ``saturated``: no job can be claimed now. ``keeps_leases``: there is a run whose lease is renewed. ``store_down``:
    it does not answer. ``longest_wait``: the claim loop may wait so long.
    """

    claim_cycle: float
    claim_unanswered: float
    lease_cycle: float
    loop_blocked: float
    stuck: float
    saturated: bool
    keeps_leases: bool
    store_down: bool
    election_healthy: bool
    longest_wait: float

    def alive(self) -> Health:
        """Whether a restart would not help."""
        facts: dict[str, str | float | bool] = {
            "claim_cycle_age_seconds": round(max(self.claim_cycle, self.claim_unanswered), 1),
            "lease_cycle_age_seconds": round(self.lease_cycle, 1),
            "loop_blocked_seconds": round(self.loop_blocked, 1),
            "slots_stuck_seconds": round(self.stuck, 1),
            "election_healthy": self.election_healthy,
        }
        return Health(self._claims and self._keeps and self.stuck < STALLED_SECONDS and self.election_healthy, facts)

    @property
    def _claims(self) -> bool:
        if self.loop_blocked > STALLED_SECONDS:
            # A handler that computes for minutes is no reason for a restart while its lease is worth something.
            return self.keeps_leases
        stalled = STALLED_SECONDS + self.longest_wait
        # Taken slots are a reason not to claim, but none for a claim that is never answered.
        claims = (self.saturated or self.claim_cycle < stalled) and self.claim_unanswered < stalled
        return self.store_down or claims

    @property
    def _keeps(self) -> bool:
        return self.store_down or self.lease_cycle < STALLED_SECONDS


def stuck_seconds(running: dict[Execution, None], slots: int, now: float) -> float:
    """Return for how long all slots have been taken by runs past their time-out, 0 if one is not; for any thread."""
    late = [now - execution.deadline for execution in copied(running) if execution.deadline < now]
    return min(late) if len(late) >= slots else 0.0


def readiness(
    *, started: bool, store_reachable: bool, stopping: bool, memory_enough: bool, memory_ratio: float | None
) -> Health:
    """Whether the worker takes jobs now, and the store can go on taking them."""
    facts: dict[str, str | float | bool] = {
        "started": started, "store_reachable": store_reachable, "stopping": stopping, "memory_enough": memory_enough,
    }  # fmt: skip
    if memory_ratio is not None:
        facts["memory_used_ratio"] = round(memory_ratio, 3)
    return Health(started and store_reachable and not stopping and memory_enough, facts)
