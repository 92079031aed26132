"""Batch handlers: jobs of one type and queue are gathered until there are enough of them, or the first has waited."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

from headrace.arguments import Validate
from headrace.context import BatchContext, Context
from headrace.errors import InvalidPayload
from headrace.handler import Handler
from headrace.worker.endings import Item
from headrace.worker.leases import EndReason, Execution, State

_NEVER = float("inf")


class Group(Execution, BatchContext):
    """One run of several jobs; it takes one slot, and the shortest of their time-outs holds for it.

    ``members`` are all of its jobs; the handler is given those in ``runs``, without the ones whose payload is refused.
    """

    __slots__ = ("_members", "_refused", "_runs")

    def __init__(self, members: Sequence[Execution]) -> None:
        first = members[0]
        self.job = first.job
        self.handler = first.handler
        self.deadline = self.check_at = self.ended_at = _NEVER
        self.lost = self._unwanted = self._was_told = False
        self.timeout_ms = min(member.timeout_ms for member in members)
        self.state = State.WAITING
        self.ending = EndReason.NONE
        self.task = None
        self._members = self._runs = tuple(members)
        self._refused: list[Item] = []
        for member in members:
            member.group = self

    @property
    def members(self) -> tuple[Execution, ...]:
        """The runs of all its jobs."""
        return self._members

    @property
    def runs(self) -> tuple[Context, ...]:
        """The runs of the jobs that the handler is given."""
        return self._runs

    def leader_epoch(self) -> int | None:
        """See `headrace.context.Context.leader_epoch`."""
        return self._members[0].leader_epoch()

    @property
    def was_told(self) -> bool:
        """Whether the handler knows that it is no longer wanted; it may have asked any of its runs."""
        return super().was_told or any(member._was_told for member in self._members)

    @property
    def held_until(self) -> float:
        """The earliest end of the leases of its jobs that are not lost."""
        return min((each.batch.held_until for each in self._members if not each.lost), default=_NEVER)

    fencing_token = BatchContext.fencing_token
    _report = BatchContext._report

    def heartbeat(self) -> None:
        """Say that the code is alive, for all jobs."""
        super().heartbeat()
        BatchContext.heartbeat(self)

    def refuse(self, errors: Mapping[int, InvalidPayload]) -> None:
        """Take out the runs at these positions of ``runs``: their jobs end with these errors."""
        self._refused += [(self._runs[position], error) for position, error in errors.items()]
        self._runs = tuple(run for position, run in enumerate(self._runs) if position not in errors)

    def withdraw(self) -> None:
        """Let the handler see that none of it is wanted."""
        super().withdraw()
        for member in self._members:
            member.withdraw()

    def time_out_at(self, deadline: float) -> None:
        """Set the deadline, also of each job."""
        super().time_out_at(deadline)
        for member in self._members:
            member.timeout_ms = self.timeout_ms
            member.deadline = deadline

    def started(self) -> None:
        """Take note that it has its slot."""
        for member in self._members:
            member.state = State.RUNNING

    def items(self, results: object) -> list[Item]:
        """Return each run with its error, None for a success. Raises TypeError if ``results`` are not one per run."""
        items: list[Item] = []
        for run, result in zip(self._runs, item_results(results, len(self._runs)), strict=True):
            failed = isinstance(result, BaseException)
            items.append((run, result if failed else None))
            if not failed and result is not None:
                run.returned = result
        return items + self._refused

    def all_with(self, error: BaseException) -> list[Item]:
        """Return each run with the same error, but for those that have one of their own."""
        return [*((run, error) for run in self._runs), *self._refused]


def item_results(results: object, jobs: int) -> Sequence[Any]:
    """Return the result of each job from what a batch handler returned: None, or a list with a result for each job.

    A result that is an exception (`Retry`, `Dead` and `Snooze` too) is what that job would have raised alone. Raises
    TypeError.
    """
    if results is None:
        return [None] * jobs
    if not isinstance(results, list | tuple) or len(results) != jobs:
        count = f" of {len(results)}" if isinstance(results, list | tuple) else ""
        raise TypeError(
            f"the batch handler returned a {type(results).__name__}{count}; return None, or a list with a result for "
            f"each of its {jobs} jobs"
        )
    return results


def check_count(ctx: Context, payloads: Sequence[Any]) -> None:
    """Raise ValueError if middleware has not passed on one payload for each job."""
    if len(payloads) != len(ctx.runs):
        raise ValueError(f"{len(payloads)} payloads were passed on for {len(ctx.runs)} jobs; pass on one for each")


def fitting(ctx: BatchContext, payloads: Sequence[Any], validate: Validate | None) -> Sequence[Any]:
    """Return the payloads that fit, as ``validate`` makes them; the runs of the others are taken out of ``ctx``."""
    check_count(ctx, payloads)
    if validate is None:
        return payloads
    fit, errors = [], {}
    for position, payload in enumerate(payloads):
        try:
            fit.append(validate(payload))
        except InvalidPayload as error:
            errors[position] = error
    if errors:
        ctx.refuse(errors)
    return fit


class Gathering:
    """Gathers runs by queue and type and gives them to ``launch``, as many as the handler takes.

    Gathered jobs have no slot yet. Where all handlers are batch handlers, `room` says how many jobs more may be claimed
    than there are slots, since they will share them.
    """

    def __init__(self, handlers: Iterable[Handler], launch: Callable[[list[Execution]], None]) -> None:
        sizes = [handler.batch.max_size if handler.batch else 0 for handler in handlers]
        self._most = max(sizes) if all(sizes) else 0
        self._launch = launch
        self._gathered: dict[tuple[str, str], list[Execution]] = {}
        self._timers: dict[tuple[str, str], asyncio.TimerHandle] = {}

    def room(self, slots: int) -> int:
        """Return how many jobs may be claimed beyond the free slots, to fill the batches that will run there."""
        if self._most <= 1 or slots <= 0:
            return 0
        return max(0, slots * (self._most - 1) - sum(map(len, self._gathered.values())))

    def add(self, execution: Execution) -> None:
        """Gather a run."""
        limits = execution.handler.batch
        if limits is None:
            raise ValueError(f"the handler of {execution.job.type!r} takes no batch")
        if execution.job.suspect:
            self._launch([execution])  # its neighbours would be suspects next
            return
        key = execution.job.queue, execution.job.type
        gathered = self._gathered.setdefault(key, [])
        gathered.append(execution)
        if len(gathered) >= limits.max_size:
            self._flush(key)
        elif len(gathered) == 1:
            self._timers[key] = asyncio.get_running_loop().call_later(limits.max_wait, self._flush, key)

    def _flush(self, key: tuple[str, str]) -> None:
        if (timer := self._timers.pop(key, None)) is not None:
            timer.cancel()
        self._launch(self._gathered.pop(key))

    def take_all(self, queue: str | None = None) -> list[Execution]:
        """Return what is gathered, or what is of one queue, to be handed back."""
        keys = [key for key in self._gathered if queue in (None, key[0])]
        for key in keys:
            if (timer := self._timers.pop(key, None)) is not None:
                timer.cancel()
        return list(chain.from_iterable([self._gathered.pop(key) for key in keys]))

    def __bool__(self) -> bool:
        return bool(self._gathered)
