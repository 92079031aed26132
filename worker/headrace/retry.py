"""Retry policies: when a failed job runs again, decided by a pure function of values.

``max_retries = 3`` means 1 + 3 runs, in every store. With base *b*, cap *c*, and *n* = runs that failed so far (1, 2,
...):

- ``exponential``: ``min(c, b * 2**(n-1)) * U(0.75, 1.25)``
- ``linear``: ``b``, constant (the name is that of the schedulers which call it so)
- ``backpressure``: ``U(b, max(b, min(c, b * 2**(n-1))))``: exponential with full jitter above a floor of *b*, so that
  the first delay is never zero

Where these do not do, a function of a handler decides, see `RetryFunction`.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from pydantic import ConfigDict, Field, model_validator

from headrace.setting_errors import SettingsModel

Strategy = Literal["exponential", "linear", "backpressure"]
Uniform = Callable[[float, float], float]


RetryFunction = Callable[[int, BaseException], float | None]
"""Called with the number of runs of a job that failed so far (1, 2, ...) and the error of the last one.

Returns after how many seconds the job runs again, or None: it is dead. It decides alone, up to a job's own
``max_retries`` and to 1,000 retries. Called in the worker's event loop, so it must not wait.
"""

MAX_RETRIES = 1000
MAX_DELAY_SECONDS = 366 * 24 * 3600


class RetryPolicy(SettingsModel):
    """How often and when failed runs are repeated."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    max_retries: int = Field(
        3, ge=0, le=MAX_RETRIES, description="Repetitions after the first run; 3 means 1 + 3 runs."
    )
    strategy: Strategy = Field("exponential", description="exponential, linear or backpressure.")
    base_ms: int = Field(1000, ge=1, le=86_400_000, description="Delay before the first repetition, milliseconds.")
    cap_ms: int = Field(60_000, ge=1, le=86_400_000, description="Longest delay before jitter, milliseconds.")

    @model_validator(mode="after")
    def _base_within_cap(self) -> RetryPolicy:
        if self.base_ms > self.cap_ms:
            raise ValueError(f"base_ms {self.base_ms} is above cap_ms {self.cap_ms}; lower base_ms or raise cap_ms")
        return self

    def delay_ms(self, failed_runs: int, uniform: Uniform = random.uniform) -> int:
        """Return the delay in milliseconds after the ``failed_runs``-th failed run (1 = the first)."""
        if self.strategy == "linear":
            return self.base_ms
        # The exponent is bounded before the power is taken: run 70 gives the cap, not an overflow.
        ceiling = min(self.cap_ms, self.base_ms << min(failed_runs - 1, 64))
        if self.strategy == "exponential":
            return round(ceiling * uniform(0.75, 1.25))
        return round(uniform(self.base_ms, max(self.base_ms, ceiling)))


@dataclass(frozen=True, slots=True)
class RetryDecision:
    """What happens to a job whose run failed: run again after ``delay_ms``, or dead if ``delay_ms`` is None."""

    delay_ms: int | None
    reason: str

    @property
    def dead(self) -> bool:
        """Whether the job has no further run."""
        return self.delay_ms is None


def decide(
    policy: RetryPolicy, failed_runs: int, *, max_retries: int | None = None, uniform: Uniform = random.uniform
) -> RetryDecision:
    """Decide what follows the ``failed_runs``-th failed run; ``max_retries`` overrides the policy's."""
    allowed = policy.max_retries if max_retries is None else max_retries
    if failed_runs > allowed:
        return RetryDecision(None, f"all {allowed + 1} runs failed")
    return RetryDecision(policy.delay_ms(failed_runs, uniform), f"retry {failed_runs} of {allowed}")


def decide_by(
    function: RetryFunction, failed_runs: int, error: BaseException, *, max_retries: int | None = None
) -> RetryDecision:
    """Let a function decide what follows the ``failed_runs``-th failed run; ``max_retries``: the job's own.

    Raises what the function raises, and ValueError or TypeError if what it returns is no delay.
    """
    allowed = MAX_RETRIES if max_retries is None else max_retries
    if failed_runs > allowed:
        return RetryDecision(None, f"all {allowed + 1} runs failed")
    delay = function(failed_runs, error)
    if delay is None:
        return RetryDecision(None, f"the retry function gave it up after {failed_runs} run(s)")
    if isinstance(delay, bool) or not isinstance(delay, int | float):
        raise TypeError(f"it returned a {type(delay).__name__}; return seconds, or None for a dead job")
    if not (math.isfinite(delay) and 0 <= delay <= MAX_DELAY_SECONDS):
        raise ValueError(f"it returned {delay}; return 0 to {MAX_DELAY_SECONDS} seconds, or None for a dead job")
    return RetryDecision(round(delay * 1000), f"retry {failed_runs} by function")


@dataclass(frozen=True, slots=True)
class RetryBy:
    """A function that decides, and the policy that does where the function fails."""

    function: RetryFunction
    policy: RetryPolicy
