"""Older versions: close what is empty, complete what is closed, and say what the rest waits for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from headrace.lifecycle import CLIENT_RETRY_MS, drain_look_ms, undrained_reason
from headrace.migration import drain_action
from headrace.stores.base import Counts
from headrace.topology import Topology
from headrace_operator.observed import Backend
from headrace_operator.planning.parked import unknown_types
from headrace_operator.planning.stuck import stuck, stuck_finding
from headrace_operator.reasons import Finding, Reason, normal, warning
from headrace_operator.steps import BuryWaiting, CloseDrained, Complete, Settle, Step

SOONEST_MS, LATEST_MS = 250, 1_500
"""Between looks at a version whose jobs run: a tenth of the time that it has drained, within these bounds."""
STUCK_LOOK_MS = 10_000


def drain(backend: Backend, topology: Topology) -> tuple[list[Step], Finding | None]:
    """Return the steps that older versions need, and what the oldest one waits for (None: nothing drains)."""
    steps: list[Step] = []
    finding: Finding | None = None
    for version in topology.older:
        counts = backend.counts.get(version, {})
        told = normal(Reason.COMPLETED, f"v{version} is drained and removed")
        if topology.versions[version].state == "removing":
            steps.append(Complete(version, event=told))
            continue
        if any(count.state == "active" for count in counts.values()):
            steps.append(Settle(topology))
            continue
        if any(count.state == "draining" and count.live == 0 for count in counts.values()):
            steps.append(CloseDrained(topology, version))
            continue
        drain = topology.settings.drain
        late = sum(count.waiting for count in counts.values() if drain_action(drain, count) == "dead_letter")
        if late:
            told = warning(
                Reason.DRAIN_TIMED_OUT, f"v{version} did not drain in time: {late} jobs are dead letters now"
            )
            steps.append(BuryWaiting(topology, version, event=told))
            continue
        waiting = undrained_reason(counts)
        if waiting is None:
            steps.append(Complete(version, event=told))
            continue
        if finding is None:
            cause = stuck(counts, topology.settings)
            finding = (
                waits_for(version, counts, backend.parked.get(version, {}), waiting)
                if cause is None
                else stuck_finding(version, cause, backend.held.get(version, ()))
            )
    if finding is None and topology.older:
        finding = Finding(Reason.CLIENTS_MAY_RETRY, f"v{topology.older[0]} is drained and being removed")
    return steps, finding


def drained(counts: Mapping[int, Counts]) -> bool:
    """Whether every partition is proven empty."""
    return bool(counts) and all(count.state in ("closed", "tombstone") for count in counts.values())


def next_look_ms(backend: Backend) -> int | None:
    """Return after how many milliseconds the draining versions are worth another look; None if none drains.

    30 s at most: soon while jobs run or wait, the sooner the shorter that has been, later if everything left is due
    later or is stuck, and at once when the last of a version is over.
    """
    topology = backend.topology
    if topology is None or not topology.older:
        return None
    soonest = 30_000
    for version in topology.older:
        counts = backend.counts.get(version, {})
        soonest = min(soonest, _jobs_end_ms(counts, topology))
        if undrained_reason(counts) in (None, "ClientsMayRetry"):
            soonest = min(soonest, _retried_ms(counts.values()))
    return soonest


def _jobs_end_ms(counts: Mapping[int, Counts], topology: Topology) -> int:
    """Return after how many milliseconds the last job of a version may have ended, or need something."""
    expected = drain_look_ms(counts.values(), topology.settings.drain.timeout_ms)
    if expected > LATEST_MS:
        return expected
    if stuck(counts, topology.settings) is not None:
        return STUCK_LOOK_MS
    ages = [count.now - count.marked_at for count in counts.values() if count.marked_at is not None]
    return min(LATEST_MS, max(SOONEST_MS, max(ages) // 10)) if ages else LATEST_MS


def _retried_ms(counts: Iterable[Counts]) -> int:
    """Return after how many milliseconds no producer resends a call of before the mark: the version can end then."""
    waits = [count.marked_at + CLIENT_RETRY_MS - count.now for count in counts if count.marked_at is not None]
    return max(0, *waits, 0) + 10


def waits_for(version: int, counts: Mapping[int, Counts], parked: Mapping[str, int], waiting: str) -> Finding:
    """Say what a version with these counts and parked types holds; ``waiting``: why it cannot be completed."""
    totals: dict[str, int] = {}
    for count in counts.values():
        for state, size in count.nonempty().items():
            totals[state] = totals.get(state, 0) + size
    held = ", ".join(f"{size} {state}" for state, size in totals.items()) or "no job"
    if not parked:
        return Finding(Reason(waiting), _message(version, counts, waiting, totals, held))
    # Only these need somebody; as long as others are left as well, that can wait.
    reason = Reason.JOBS_PARKED if set(totals) <= {"parked", "dead"} else Reason(waiting)
    return Finding(reason, f"v{version} holds {held}; {unknown_types(parked)}")


def _message(version: int, counts: Mapping[int, Counts], waiting: str, totals: Mapping[str, int], held: str) -> str:
    if waiting == Reason.CLIENTS_MAY_RETRY:
        return f"v{version} is empty; a producer may still resend a call of before the promotion, for 5 s at most"
    due = [count.next_due_at for count in counts.values() if count.next_due_at is not None]
    if due and set(totals) <= {"scheduled", "retry", "dead"}:
        seconds = max(0, min(due) - max(count.now for count in counts.values())) // 1000
        return f"v{version} holds {held}; the next one is due in {seconds} s"
    return f"v{version} holds {held}"
