"""How long everything takes: profiles that are checked as a whole, because each bound rests on the others."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from headrace.errors import InvalidInput

LONGEST_FAILBACK = 600.0
"""Seconds: neither the wait before going back up nor the memory of earlier flips grows beyond it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timings:
    """Seconds, all of them. Broken inequalities are refused with `headrace.errors.InvalidInput`.

    ``lease_duration`` (whole seconds): silence after which others may take over. ``renew_deadline``: how long one
    renewal counts for the leader itself; ``lease_duration / renew_deadline`` is the tolerated ratio of clock rates.
    ``retry_period``: between renewals and between looks of a follower; a quarter of it after a failure.
    ``call_timeout``: of one call. ``fence_ttl``: how long a claim keeps candidates of equal or lower rank away.
    ``fallback_after``: silence of a backend before the next one is tried. ``failback_after`` (the leader) and
    ``failback_after_others``: time without a failed probe before a backend is used again. ``probe_period``: between
    probes of a backend above the one in use. ``duty_slice``: length of one leader script; the right to run is checked
    before each.
    """

    lease_duration: int
    renew_deadline: float
    retry_period: float
    call_timeout: float
    fence_ttl: float
    fallback_after: float
    failback_after: float
    failback_after_others: float
    probe_period: float
    duty_slice: float

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise InvalidInput(name, f"is {value}", "give a number of seconds above 0")
        if self.lease_duration != int(self.lease_duration) or self.lease_duration < 1:
            raise InvalidInput("lease_duration", f"is {self.lease_duration}", "give whole seconds, at least 1")
        duration, deadline, call = self.lease_duration, self.renew_deadline, self.call_timeout
        attempt = call + self.pause
        _at_least("lease_duration", duration, 1.5 * deadline, f"1.5 x renew_deadline {deadline:g}")
        _at_least(
            "renew_deadline",
            deadline,
            self.retry_period + 2 * attempt,
            f"retry_period {self.retry_period:g} + 2 x (call_timeout {call:g} + {self.pause:g}), or three tries do not "
            "fit",
        )
        if self.fence_ttl <= deadline:
            raise InvalidInput(
                "fence_ttl", f"{self.fence_ttl:g} is not above renew_deadline {deadline:g}", "set it above that"
            )
        _at_most("fence_ttl", self.fence_ttl, 2 * duration, f"2 x lease_duration {duration:g}")
        _at_least("fallback_after", self.fallback_after, 2 * attempt, f"2 x (call_timeout {call:g} + {self.pause:g})")
        _at_most(
            "fallback_after",
            self.fallback_after,
            deadline - call,
            f"renew_deadline {deadline:g} - call_timeout {call:g}",
        )
        _at_least("failback_after", self.failback_after, 2 * duration, f"2 x lease_duration {duration:g}")
        _at_least(
            "failback_after_others", self.failback_after_others, self.failback_after, "failback_after, the leader's own"
        )
        _at_most("failback_after_others", self.failback_after_others, LONGEST_FAILBACK, "the longest wait")

    @property
    def pause(self) -> float:
        """Wait after a failed call."""
        return self.retry_period / 4

    @property
    def bound(self) -> float:
        """Longest time without a leader after a fault, while Redis answers and calls end within ``call_timeout``."""
        return max(self.lease_duration, self.fence_ttl) + 1.2 * self.retry_period + 3 * self.call_timeout


def _at_least(name: str, value: float, least: float, meaning: str) -> None:
    if value < least - 1e-9:
        raise InvalidInput(name, f"{value:g} is below {least:g} ({meaning})", f"set it to at least {least:g}")


def _at_most(name: str, value: float, most: float, meaning: str) -> None:
    if value > most + 1e-9:
        raise InvalidInput(name, f"{value:g} is above {most:g} ({meaning})", f"set it to at most {most:g}")


def derived(
    lease_duration: int, renew_deadline: float, retry_period: float, call_timeout: float | None = None
) -> Timings:
    """Return timings with the rest chosen to fit these. Raises `headrace.errors.InvalidInput` if nothing does."""
    pause = retry_period / 4
    longest = (renew_deadline - 2 * pause) / 3
    fitting = min((renew_deadline - retry_period) / 2 - pause, longest)
    call = call_timeout or min(2.5, fitting if fitting > 0 else renew_deadline / 4)
    if call_timeout is not None and longest > 0:
        meaning = f"(renew_deadline {renew_deadline:g} - retry_period {retry_period:g} / 2) / 3"
        _at_most("call_timeout", call, longest, meaning)
    return Timings(
        lease_duration=lease_duration,
        renew_deadline=renew_deadline,
        retry_period=retry_period,
        call_timeout=call,
        fence_ttl=float(lease_duration),
        fallback_after=2 * (call + pause),
        failback_after=2.0 * lease_duration,
        failback_after_others=min(2.0 * lease_duration + 20, LONGEST_FAILBACK),
        probe_period=2.5 * retry_period,
        duty_slice=min(0.5, retry_period / 2.5),
    )


STANDARD = Timings(
    lease_duration=15,
    renew_deadline=10.0,
    retry_period=2.0,
    call_timeout=2.5,
    fence_ttl=15.0,
    fallback_after=6.0,
    failback_after=30.0,
    failback_after_others=50.0,
    probe_period=5.0,
    duty_slice=0.5,
)
"""For an API server whose slowest percent of calls takes up to half a second."""

RELAXED = replace(
    STANDARD,
    lease_duration=30,
    renew_deadline=20.0,
    retry_period=5.0,
    fence_ttl=30.0,
    fallback_after=12.0,
    failback_after=60.0,
    failback_after_others=80.0,
    probe_period=10.0,
)
"""For queues whose jobs never wait for a leader: fewer calls, and housekeeping may wait up to 45 s."""

FAST = Timings(
    lease_duration=4,
    renew_deadline=2.6,
    retry_period=0.5,
    call_timeout=0.7,
    fence_ttl=4.0,
    fallback_after=1.8,
    failback_after=10.0,
    failback_after_others=16.0,
    probe_period=1.5,
    duty_slice=0.2,
)
"""For a near and healthy API server: a crash costs about 5 s, and four times the calls."""
