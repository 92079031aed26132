"""How many workers a queue should have: one pure function of what is known.

It follows waiting time. Slots (jobs that run at the same time) are wanted

- for what arrives: ``a = arrivals x service`` are busy on average, and ``headroom x sqrt(a)`` more take up its swings;
- for what waits, or is due before a new Pod could run it: so many that it has run within ``targetWaitSeconds`` (or
  two runs, or a Pod's start, if that is longer);
- twice as many as there are, at most, if the oldest job has waited longer than that, whatever the estimates say;

but never more than there are jobs, and one: one job that is stuck does not raise fifty Pods.

Up at once; Pods that are not ready yet were asked for and count. Down only to the largest number of the last 60 s, at
most by half in 30 s, and never below what runs. To zero last, when there was nothing to do for ``idleSeconds``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from headrace_operator.scaling.inputs import Inputs, Load, Pods, Rules

STEP_SECONDS = 30.0
"""Time between two steps down."""
WATCHED_SECONDS = 60.0
"""Nothing is given up before as much is known as the window holds, by this operator or the one before it."""
RATE_SPARE = 1.2
"""A limited rate is worth this many times the slots that it can keep busy."""


class Limit(StrEnum):
    """What kept the number from following the load."""

    MANUAL = "Manual"
    DISABLED = "Disabled"
    METRICS_UNKNOWN = "MetricsUnknown"
    FALLBACK = "Fallback"
    SLOTS_UNKNOWN = "SlotsUnknown"
    HOLD = "Hold"
    MIN_REPLICAS = "MinReplicas"
    MAX_REPLICAS = "MaxReplicas"
    MAX_IN_FLIGHT = "MaxInFlight"
    RATE = "RateLimit"
    ROLLOUT = "Rollout"
    WATCHED_BRIEFLY = "WatchedBriefly"
    WINDOW = "Stabilizing"
    STEP = "StepDown"
    RUNNING = "JobsRun"
    IDLE = "IdleWindow"


@dataclass(frozen=True, slots=True)
class Decision:
    """``replicas`` to ask for, and why. ``limited_by``: what held it back or raised it, None if it follows the load.

    ``wanted``: what the load alone asks for now, to be remembered; None if there is nothing to remember.
    """

    replicas: int
    reason: str
    limited_by: Limit | None = None
    wanted: int | None = None


@dataclass(frozen=True, slots=True)
class _Wanted:
    count: int
    limit: Limit | None
    text: str


def decide(inputs: Inputs) -> Decision:
    """Return how many workers there should be now. It has no effect and no memory: the caller keeps the history."""
    rules, pods = inputs.rules, inputs.pods
    if rules.mode != "Backlog":
        return Decision(pods.replicas, f"scaling.mode is {rules.mode}", Limit(rules.mode))
    if inputs.load is None or not inputs.load.known:
        return _blind(inputs)
    load = inputs.load.held() if rules.held else inputs.load.cleaned()
    if pods.slots is None:
        return _without_slots(rules, pods, load)
    wanted = _wanted(rules, pods, load.cleaned(), pods.slots)
    if pods.replicas > rules.max_replicas:
        # Somebody has decided that; no window stands against it.
        reason = f"scaling.maxReplicas is {rules.max_replicas}; {wanted.text}"
        return Decision(rules.max_replicas, reason, Limit.MAX_REPLICAS, wanted.count)
    if wanted.count >= pods.replicas:
        if rules.held:
            kept = max(pods.replicas, rules.min_replicas)
            return Decision(kept, f"the queue is held; {wanted.text}", Limit.HOLD, wanted.count)
        return Decision(wanted.count, wanted.text, wanted.limit, wanted.count)
    return _down(inputs, load, wanted, pods.slots)


def _blind(inputs: Inputs) -> Decision:
    """Decide without figures: stay, and after some time at least the fallback. Never down, within the bounds."""
    rules, replicas = inputs.rules, inputs.pods.replicas
    stay = min(max(replicas, rules.min_replicas), rules.max_replicas)
    if inputs.failures < rules.failure_threshold or rules.held:
        return Decision(stay, "the load is not known; nothing is changed", Limit.METRICS_UNKNOWN)
    fallback = min(max(stay, rules.fallback_replicas), rules.max_replicas)
    times = f"the load could not be read {inputs.failures} times in a row"
    return Decision(fallback, f"{times}; at least scaling.fallback.replicas", Limit.FALLBACK)


def _without_slots(rules: Rules, pods: Pods, load: Load) -> Decision:
    """Decide without knowing what one Pod can do: one if there is work, which will tell."""
    least = max(rules.min_replicas, 1 if load.active and not rules.held else 0)
    stay = min(max(pods.replicas, least), rules.max_replicas)
    return Decision(stay, "it is not known how many jobs one Pod runs at a time", Limit.SLOTS_UNKNOWN)


def _wanted(rules: Rules, pods: Pods, load: Load, slots_per_pod: int) -> _Wanted:
    ready, running, due = load.ready or 0, load.in_flight or 0, load.due_in_cold_start or 0
    arrivals, service, oldest = load.arrivals_per_second or 0.0, load.service or 1.0, load.oldest_ready or 0.0
    waiting = ready + due
    busy = arrivals * service
    slots = busy + rules.headroom * math.sqrt(busy)
    slots += waiting * service / max(rules.target_wait, 2 * service, pods.cold_start)
    if oldest > rules.target_wait and rules.target_wait > 0:
        slots = max(slots, pods.ready * slots_per_pod * min(2.0, oldest / rules.target_wait))
    slots = min(slots, waiting + running + 1)
    limit = None
    if rules.rate_per_second is not None and slots > (most := rules.rate_per_second * service * RATE_SPARE):
        slots, limit = most, Limit.RATE
    desired = math.ceil(slots / slots_per_pod) if load.active else 0

    floor = 1 if load.active else 0
    ceiling = rules.max_replicas
    if rules.max_in_flight is not None:
        ceiling = min(ceiling, max(1, math.ceil(rules.max_in_flight / slots_per_pod)))
    count = max(floor, rules.min_replicas, min(desired, ceiling))
    count = min(count, rules.max_replicas)
    if count < desired:
        limit = Limit.MAX_REPLICAS if ceiling == rules.max_replicas else Limit.MAX_IN_FLIGHT
    elif count > max(desired, floor):
        limit = Limit.MIN_REPLICAS
    return _Wanted(count, limit, _told(load, pods, count))


def _down(inputs: Inputs, load: Load, wanted: _Wanted, slots_per_pod: int) -> Decision:
    rules, pods, history = inputs.rules, inputs.pods, inputs.history
    now = load.now_ms

    def stay(limit: Limit, why: str) -> Decision:
        return Decision(pods.replicas, f"{why}; {wanted.text}", limit, wanted.count)

    runs = math.ceil((load.in_flight or 0) / slots_per_pod)
    target = max(wanted.count, min(rules.max_replicas, runs))
    if target >= pods.replicas:
        return stay(Limit.RUNNING, f"{load.in_flight} jobs run")
    peak = history.peak(now)
    if peak >= pods.replicas:
        return stay(Limit.WINDOW, f"up to {peak} were wanted within the last minute")
    if pods.rolling_out:
        return stay(Limit.ROLLOUT, "Pods are being replaced")
    if history.watched(now) < WATCHED_SECONDS:
        return stay(Limit.WATCHED_BRIEFLY, "not watched for a minute yet")
    if history.since_step_down(now) < STEP_SECONDS:
        return stay(Limit.STEP, f"the last step down is less than {STEP_SECONDS:g} s ago")
    if pods.replicas == 1:
        # Only what nobody needs gets here: one worker is the floor of every queue with something to do.
        if history.idle(now) < rules.idle:
            return stay(Limit.IDLE, f"idle for less than scaling.idleSeconds {rules.idle:g}")
        return Decision(0, f"nothing to do for {history.idle(now):.0f} s", None, wanted.count)
    step = max(target, peak, math.ceil(pods.replicas / 2))
    limit = wanted.limit if step == wanted.count else (Limit.RUNNING if step == runs else Limit.STEP)
    return Decision(step, wanted.text, limit, wanted.count)


def _told(load: Load, pods: Pods, count: int) -> str:
    parts = [f"{load.ready} ready", f"{load.in_flight} running"]
    if load.due_in_cold_start:
        parts.append(f"{load.due_in_cold_start} due within {pods.cold_start:.0f} s")
    if load.untried:
        parts.append(f"{load.untried} parked until a worker of this template has been asked")
    if load.oldest_ready:
        parts.append(f"the oldest due for {load.oldest_ready:.1f} s")
    if load.arrivals_per_second and load.arrivals_per_second >= 0.05:
        parts.append(f"{load.arrivals_per_second:.1f} more per second")
    return f"{', '.join(parts)}: {count} wanted"
