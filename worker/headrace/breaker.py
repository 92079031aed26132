"""A circuit breaker: while what a type of job depends on is down, its jobs are put off instead of failed."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from headrace.context import Context
from headrace.control import Control, Snooze
from headrace.errors import InvalidInput, InvalidPayload

log = logging.getLogger("headrace.breaker")


@dataclass(slots=True)
class _Circuit:
    """``failures`` in a row; ``opens`` in a row; closed again after ``open_until``, by the run that ``tries``."""

    failures: int = 0
    opens: int = 0
    open_until: float = 0.0
    trying: bool = False


class CircuitBreaker:
    """Middleware, registered with ``app.middleware(CircuitBreaker())``.

    After ``failures`` failed runs of a type in a row, its jobs in this process are put off like with `Snooze`, which
    costs no attempt, for ``pause`` seconds (times 0.5 to 1.5 at random, so that they do not all come back at once).
    Then one job is tried: if it succeeds the others go on, if it fails the next pause is twice as long, up to
    ``longest`` seconds. ``failed``: whether an error means that the dependency is down (default: every error, and a
    time-out); what a handler says with `Retry`, `Dead` and `Snooze`, and a payload that does not fit, is no failure.
    """

    def __init__(
        self,
        failures: int = 20,
        pause: float = 30.0,
        longest: float = 600.0,
        failed: Callable[[BaseException], bool] = lambda error: True,
        *,
        clock: Callable[[], float] = time.monotonic,
        uniform: Callable[[float, float], float] = random.uniform,
    ) -> None:
        for field, value in (("failures", failures), ("pause", pause)):
            if value <= 0:
                raise InvalidInput(field, f"is {value}", "give a number above 0")
        if longest < pause:
            raise InvalidInput("longest", f"{longest} s is below the pause of {pause} s", "give at least that")
        self._failures = failures
        self._pause = pause
        self._longest = longest
        self._failed = failed
        self._clock = clock
        self._uniform = uniform
        self._circuits: dict[tuple[str, str], _Circuit] = {}

    def open_types(self) -> dict[tuple[str, str], float]:
        """Return the seconds for which jobs are still put off, by queue and type, where they are."""
        now = self._clock()
        left = {key: circuit.open_until - now for key, circuit in self._circuits.items() if circuit.opens}
        return {key: max(0.0, seconds) for key, seconds in left.items()}

    async def __call__(self, ctx: Context, payload: Any, call_next: Callable[[Context, Any], Awaitable[Any]], /) -> Any:
        """Run the handler, or put the job off."""
        key = ctx.job.queue, ctx.job.type
        circuit = self._circuits.get(key)  # there is one only for types that have failed
        trying = False
        if circuit is not None and circuit.opens:
            if circuit.trying or self._clock() < circuit.open_until:
                raise Snooze(self._put_off(circuit))
            circuit.trying = trying = True
        try:
            result = await call_next(ctx, payload)
        except BaseException as error:
            if self._is_failure(ctx, error):
                self._note_failure(key, trying=trying)
            raise
        finally:
            if trying and circuit is not None:
                circuit.trying = False
        if circuit is not None:
            self._note_success(key, circuit)
        return result

    def _put_off(self, circuit: _Circuit) -> timedelta:
        left = max(circuit.open_until - self._clock(), self._pause / 10)
        return timedelta(seconds=left + self._uniform(0, self._pause))

    def _is_failure(self, ctx: Context, error: BaseException) -> bool:
        if isinstance(error, Control | InvalidPayload):
            return False
        if isinstance(error, Exception):
            return self._failed(error)
        return time.monotonic() >= ctx.deadline  # cancelled: by its time-out, or because the worker stops

    def _note_failure(self, key: tuple[str, str], *, trying: bool) -> None:
        circuit = self._circuits.setdefault(key, _Circuit())
        circuit.failures += 1
        if trying or (circuit.failures >= self._failures and not circuit.opens):
            circuit.opens += 1
            pause = min(self._longest, self._pause * 2 ** min(circuit.opens - 1, 30))
            circuit.open_until = self._clock() + pause * self._uniform(0.5, 1.5)
            log.warning(
                "queue %s: %d runs of type %r have failed in a row; its jobs are put off for about %g s", key[0],
                circuit.failures, key[1], pause,
            )  # fmt: skip

    def _note_success(self, key: tuple[str, str], circuit: _Circuit) -> None:
        if circuit.opens:
            log.warning("queue %s: a job of type %r has succeeded; its jobs go on", *key)
        self._circuits.pop(key, None)
