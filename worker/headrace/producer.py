"""The producer: puts jobs into queues, wherever their active version is.

A call has two parts: jobs are packed and checked first, so that bad input changes nothing; then they are placed (see
`headrace.placement`). Concurrent calls for single jobs travel together.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import aclosing
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any

from headrace.envelope import MAX_PAYLOAD_BYTES, body_priority, record_body
from headrace.errors import HeadraceError, InvalidInput, JobFailed, OutcomeUnknown
from headrace.forks import check_process, this_process
from headrace.ids import encode_id
from headrace.inquiry import Inquiry
from headrace.job import Enqueued
from headrace.job_fields import Priority, check_whole, is_finite, shortened
from headrace.job_spec import JobSpec, lane, pack, pack_all, pack_each, pack_fields
from headrace.job_status import JobStatus, State
from headrace.lifecycle import CLIENT_RETRY_MS
from headrace.pending import Pending
from headrace.placement import Placement
from headrace.retry import RetryPolicy
from headrace.stores import check_store, open_store
from headrace.stores.base import NewJob, Once, Replicas, Store
from headrace.topology import check_queue_name
from headrace.waiting import DEFAULT_TIMEOUT, Pace, Waiter
from headrace.withdrawal import Cancellation, cancel_jobs

__all__ = ["Enqueued", "JobSpec", "Producer"]

MAX_RETRY_SECONDS = CLIENT_RETRY_MS / 1000 - 0.5
"""Longest time a producer seeks the outcome of a step, with a margin below what completing a version waits."""

MAX_REPLICAS = 9
MAX_WAIT_MS = 2000


class Producer:
    """Enqueues jobs through a Store, from one event loop. Any number of tasks may share it.

    After a fork its calls raise HeadraceError in the child: make one per process.

    ``store`` is a Store, or a URL that is opened with ``prefix`` (see `headrace.stores.open_store`). Use as an async
    context manager, or call `aclose`: both close the store.

    Concurrent `enqueue` calls travel together. ``max_payload_bytes`` limits a packed payload (default 1 MiB).
    ``retry_for`` (default and most: 4.5) is how long, in seconds, the outcome of a step is sought before
    OutcomeUnknown: a drained version lives on for 5 s so that it can be found out.

    ``wait_replicas``: calls return when so many replicas (0 to 9, default none) have their jobs, or raise NotReplicated
    if they have not within ``wait_ms`` (1 to 2000 ms): then the jobs are stored, and a failover may lose them.
    """

    def __init__(
        self,
        store: str | Store,
        *,
        prefix: str = "headrace",
        max_payload_bytes: int = MAX_PAYLOAD_BYTES,
        retry_for: float = MAX_RETRY_SECONDS,
        wait_replicas: int = 0,
        wait_ms: int = 500,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if not is_finite(retry_for) or not 0 < retry_for <= MAX_RETRY_SECONDS:
            raise InvalidInput(
                "retry_for", f"is {shortened(retry_for)} s", f"give more than 0 and at most {MAX_RETRY_SECONDS} s"
            )
        check_whole("max_payload_bytes", max_payload_bytes, 1)
        check_whole("wait_replicas", wait_replicas, 0, MAX_REPLICAS)
        check_whole("wait_ms", wait_ms, 1, MAX_WAIT_MS, " ms")
        opened = open_store(store, prefix) if store is None or isinstance(store, str) else check_store(store)
        self._store = opened
        self._max_payload_bytes = max_payload_bytes
        self._placement = Placement(
            opened,
            retry_for=retry_for,
            clock=clock,
            replicas=Replicas(wait_replicas, wait_ms) if wait_replicas else None,
        )
        self._waiting: dict[str, list[tuple[Pending, asyncio.Future[Enqueued]]]] = {}
        self._senders: dict[str, asyncio.Task[None]] = {}
        self._placing = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._closed = False
        self._process = this_process()

    async def enqueue(
        self,
        queue: str,
        type: str,
        payload: Any = None,
        *,
        id: str | None = None,
        run_at: datetime | float | None = None,
        delay: timedelta | float | None = None,
        max_retries: int | None = None,
        timeout: timedelta | float | None = None,
        headers: dict[str, str] | None = None,
        priority: Priority | None = None,
        retry: RetryPolicy | None = None,
    ) -> Enqueued:
        """Put one job into ``queue`` and return where it is.

        ``type`` names the handler. ``payload`` is anything that JSON can hold, a pydantic model or a dataclass (stored
        as JSON, under its aliases), or bytes. ``id``: 1..200 bytes of text, unique while the job lives (default: a new
        UUIDv7); enqueueing a live id changes nothing and reports the existing job. ``run_at``: an aware datetime or
        seconds since the epoch; ``delay``: a timedelta or seconds from now by the server's clock; default now.
        ``timeout`` (seconds), ``retry`` and ``max_retries`` (0..1000, also above that of ``retry``) override the
        queue's settings for this job. ``headers``: text to text, handed to the handler. ``priority``: "high", "default"
        or "low" (0, 1, 2): of the jobs that are ready in a partition, seven of ten that are taken are high, two default
        and one low, as far as there are any.

        Raises InvalidInput or PayloadTooLarge before anything is sent. Not enqueued after UnknownQueue, QueueDeleting,
        QueueFull, QueueHeld, StoreFull, StoreUnavailable (AccessDenied too) or TopologyConflict. Enqueued
        after NotReplicated, see ``wait_replicas``. Unknown after OutcomeUnknown: the store did not answer in time.
        """
        check_queue_name(queue)
        limit = self._max_payload_bytes
        job = Pending(
            *pack_fields(type, payload, id, run_at, delay, max_retries, timeout, headers, priority, retry, limit)
        )
        self._check_open()
        sender = self._senders.get(queue)
        if sender is None:
            sender = self._senders[queue] = asyncio.create_task(self._send_waiting(queue))
        # From the task: asking for the running loop is a system call up to Python 3.11.
        placed: asyncio.Future[Enqueued] = sender.get_loop().create_future()
        self._waiting.setdefault(queue, []).append((job, placed))
        return await placed

    async def enqueue_many(self, queue: str, jobs: Iterable[JobSpec]) -> list[Enqueued]:
        """Put many jobs into ``queue``; the results stand in the order of ``jobs``. Errors as in `enqueue`.

        All jobs are checked before the first is sent; the error of one names its index (``jobs[777].delay``). The call
        is not atomic as a whole: if it ends in an error, some jobs may be in the queue; with ids of their own they can
        be sent again, and `enqueue_each` tells which are.
        """
        check_queue_name(queue)
        pending = [Pending(*packed) for packed in pack_all(jobs, self._max_payload_bytes)]
        self._check_open()
        await self._place(queue, pending)
        return _results(pending)

    async def enqueue_each(self, queue: str, jobs: Iterable[JobSpec]) -> list[Enqueued | HeadraceError]:
        """Put many jobs into ``queue``; what became of each, in the order of ``jobs``: its place, or its own error.

        Errors of single jobs are those of `enqueue`, and stop no other job: bad input too, which names the index.
        Raises InvalidInput only for a wrong ``queue``, or if ``jobs`` cannot be iterated.
        """
        check_queue_name(queue)
        packed = pack_each(jobs, self._max_payload_bytes)
        self._check_open()
        each = [error if isinstance(error, HeadraceError) else Pending(*error) for error in packed]
        await self._place(queue, [job for job in each if isinstance(job, Pending)])
        return [job.outcome() if isinstance(job, Pending) else job for job in each]

    async def enqueue_record(self, queue: str, id: str, record: bytes) -> Enqueued:
        """Put the packed record of an earlier job into ``queue`` again, under its id, to run now.

        Errors as in `enqueue`. This is how a dead letter comes back: with its own settings, and all its runs before it.
        """
        check_queue_name(queue)
        body = record_body(record)
        job = Pending(id, NewJob(lane(body_priority(body)) + encode_id(id), 0, body), given=True)
        self._check_open()
        await self._place(queue, [job])
        return _results([job])[0]

    async def enqueue_once(self, queue: str, spec: JobSpec, once: Once) -> Enqueued:
        """Put one job into ``queue``, unless ``once`` says that it has been; errors as in `enqueue`.

        This is how the job of a schedule is enqueued by whoever leads, also if two do, or one comes late.
        """
        check_queue_name(queue)
        job = Pending(*pack(spec, self._max_payload_bytes), once)
        self._check_open()
        await self._place(queue, [job])
        return _results([job])[0]

    async def status(self, queue: str, id: str) -> JobStatus:
        """Return where a job is: scheduled, ready, leased, retry_wait, parked, dead, succeeded or unknown.

        Without the queue's ``retention``, nothing is kept of a job that succeeded: it is unknown then. Raises
        InvalidInput, UnknownQueue or StoreUnavailable.
        """
        return (await self.statuses(queue, [id]))[id]

    async def statuses(self, queue: str, ids: Iterable[str]) -> dict[str, JobStatus]:
        """Return where each of many jobs is; see `status`."""
        self._check_open()
        return await Inquiry(self._store, check_queue_name(queue)).look(ids)

    async def cancel(self, queue: str, id: str, *, running: bool = True) -> Cancellation:
        """Remove a live job for good; where it was, and whether it was cancelled. Its id may be used again at once.

        One that waits never runs. One that runs (if ``running``) loses its lease: whatever comes of the run is refused,
        and its handler is told to stop when the lease would be renewed, within a third of it. One that has ended stays
        as it is (``cancelled`` is false, ``state`` says how it ended). The same again is safe after any error. Raises
        InvalidInput, UnknownQueue, StoreUnavailable, JobMoving or JobUnlisted.
        """
        self._check_open()
        (cancelled,) = await cancel_jobs(self._store, queue, [id], running=running)
        return cancelled

    async def wait(
        self,
        queue: str,
        ids: Iterable[str],
        *,
        status: State | None = None,
        timeout: float | None = DEFAULT_TIMEOUT,
    ) -> dict[str, JobStatus]:
        """Wait until each job has ended (succeeded, dead or unknown); the status of each.

        With ``status``, until each was seen in that state, or has ended. ``timeout``: seconds (default 60), None for no
        limit. Jobs are looked for again and again, at most once a second while nothing changes; a store that does not
        answer is waited for. Raises WaitTimeout, which holds what was seen; RetentionOff if the queue keeps no finished
        jobs; InvalidInput, UnknownQueue or AccessDenied.
        """
        self._check_open()
        return await Waiter(self._store, queue, self._check_open).until(list(ids), status, Pace(timeout))

    async def watch(
        self, queue: str, ids: Iterable[str], *, timeout: float | None = DEFAULT_TIMEOUT
    ) -> AsyncGenerator[JobStatus, None]:
        """Yield the status of each job, and each change of it that is seen, until all have ended. Errors as in `wait`.

        A job may pass through a state between two looks, which are at most a second apart.
        """
        self._check_open()
        async with aclosing(Waiter(self._store, queue, self._check_open).changes(ids, Pace(timeout))) as changes:
            async for change in changes:
                yield change

    async def wait_until_empty(self, queue: str, *, timeout: float | None = DEFAULT_TIMEOUT) -> None:
        """Wait until the queue holds no live job: none waits, runs, is parked or is to be retried.

        Needs no retention. Raises WaitTimeout (``live``: how many are left), UnknownQueue or AccessDenied.
        """
        self._check_open()
        await Waiter(self._store, queue, self._check_open).until_empty(Pace(timeout))

    async def result(self, queue: str, id: str, *, timeout: float | None = DEFAULT_TIMEOUT) -> Any:
        """Wait until a job has ended, and return what its handler returned (None if nothing).

        Raises JobFailed if it is dead or unknown, ResultNotKept if its result was too large or no JSON, and the errors
        of `wait`.
        """
        status = (await self.wait(queue, [id], timeout=timeout))[id]
        if status.state != "succeeded":
            raise JobFailed(queue, status)
        return status.result

    async def aclose(self) -> None:
        """Wait for calls under way and close the store; further calls raise HeadraceError. Idempotent.

        After a fork it does nothing: the calls and the connections are those of the process that made them.
        """
        if self._process != this_process():
            return
        self._closed = True
        await asyncio.gather(*self._senders.values())
        await self._idle.wait()
        await self._store.close()

    async def __aenter__(self) -> Producer:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def _check_open(self) -> None:
        check_process("Producer", self._process)
        if self._closed:
            raise HeadraceError("this Producer is closed; make a new one")

    # ---- placing --------------------------------------------------------------------------------------------------

    async def _send_waiting(self, queue: str) -> None:
        """Place what concurrent `enqueue` calls have left since the last round trip, until nothing waits."""
        try:
            while calls := self._waiting.pop(queue, None):
                problem: Exception | None = None
                try:
                    await self._place(queue, [job for job, _ in calls])
                except Exception as error:  # a defect: each caller gets it
                    problem = error
                for job, placed in calls:
                    if placed.done():  # its caller was cancelled
                        continue
                    outcome = problem or job.outcome()
                    if isinstance(outcome, Exception):
                        placed.set_exception(outcome)
                    else:
                        placed.set_result(outcome)
        finally:
            del self._senders[queue]

    async def _place(self, queue: str, pending: Sequence[Pending]) -> None:
        """Give every job a result or an error of its own."""
        self._placing += 1
        self._idle.clear()
        try:
            await self._placement.place(queue, pending)
        finally:
            self._placing -= 1
            if not self._placing:
                self._idle.set()


def _results(pending: Sequence[Pending]) -> list[Enqueued]:
    """Return where the jobs are, or raise one of their errors, OutcomeUnknown first."""
    outcomes = [job.outcome() for job in pending]
    errors = [outcome for outcome in outcomes if isinstance(outcome, HeadraceError)]
    if errors:
        raise next((error for error in errors if isinstance(error, OutcomeUnknown)), errors[0])
    return [outcome for outcome in outcomes if isinstance(outcome, Enqueued)]
