"""TestQueue: a queue in memory with a real worker on it, driven step by step."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import Any, NamedTuple

from headrace.app import App
from headrace.dead_letters import dead_jobs
from headrace.errors import InvalidInput
from headrace.job import Job
from headrace.lifecycle import promote
from headrace.producer import Enqueued, JobSpec, Producer
from headrace.settings import QueueSettings
from headrace.testing.recording import Clock, RecordingStore, Run, from_ms, to_ms
from headrace.withdrawal import Cancellation
from headrace.worker import Ending, Metrics, Worker, WorkerSettings

WITHIN = 10.0


class Delayed(NamedTuple):
    """A job that waits, for its first run or a retry, and when it is due on the clock of the test."""

    job: Job
    due_at: datetime


class TestQueue:
    """Queues in memory with a real worker that runs the handlers of ``app``; use it as ``async with``.

    Nothing runs but during `run_until_idle`, `advance` and `drain`, and time stands still between them. It begins at
    ``now`` (default: the system's time). ``queues`` exist with one version of ``partitions`` partitions and
    ``settings``; the first is the one that calls without ``queue`` mean. ``worker`` are fields of
    `headrace.WorkerSettings`, such as ``concurrency`` or ``retry``; the environment is not looked at.
    ``metrics`` are the worker's (default: none).

    Only the queue's time is the test's: a handler that sleeps, or is timed out, takes real time. ``within`` (default
    10) is how many seconds of it a call may take; then it raises TimeoutError and names what still runs.
    """

    __test__ = False  # not a test class, whatever its name

    def __init__(
        self,
        app: App,
        *,
        queues: Sequence[str] = ("default",),
        partitions: int = 1,
        settings: QueueSettings | None = None,
        now: datetime | None = None,
        within: float = WITHIN,
        metrics: Metrics | None = None,
        **worker: Any,
    ) -> None:
        if now is not None and now.tzinfo is None:
            raise InvalidInput("now", "is a datetime without a time zone", "give an aware datetime")
        self.clock = Clock(now or datetime.now(UTC))
        self.store = RecordingStore(self.clock, self._note_change)
        self.producer = Producer(self.store)
        self._app = app
        self._partitions = partitions
        self._queue_settings = settings
        self._within = within
        self._metrics = metrics
        defaults = {
            name: field.get_default(call_default_factory=True) for name, field in WorkerSettings.model_fields.items()
        }
        # Elected in real time; of a queue that everybody runs there is nothing to lead.
        leads = "memory" if settings is not None and settings.mode == "leader_only" else "none"
        self._settings = WorkerSettings(
            **{**defaults, "worker_id": "test", "leader_backends": (leads,), **worker, "queues": tuple(queues)}
        )
        self._change: asyncio.Future[None] | None = None
        self._worker: Worker | None = None
        self._working: asyncio.Task[Ending] | None = None

    # ---- putting jobs in --------------------------------------------------------------------------------------------

    async def enqueue(self, type: str, payload: Any = None, *, queue: str | None = None, **options: Any) -> Enqueued:
        """Put one job into the queue; ``options`` are those of `headrace.Producer.enqueue`. It does not run yet."""
        return await self.producer.enqueue(self._named(queue), type, payload, **options)

    async def enqueue_many(self, jobs: Iterable[JobSpec], *, queue: str | None = None) -> list[Enqueued]:
        """Put many jobs into the queue; see `headrace.Producer.enqueue_many`."""
        return await self.producer.enqueue_many(self._named(queue), jobs)

    async def cancel(self, id: str, *, queue: str | None = None) -> Cancellation:
        """Remove a live job for good; see `headrace.Producer.cancel`. Of one that runs, the run counts as over."""
        return await self.producer.cancel(self._named(queue), id)

    # ---- letting them run -------------------------------------------------------------------------------------------

    async def run_until_idle(self) -> list[Run]:
        """Run everything that is due now, and what it leads to, and return these runs in the order they began."""
        before = len(self.store.runs)
        await self._pass(self.clock())
        return self.store.runs[before:]

    async def advance(
        self, *, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0, to: datetime | None = None
    ) -> list[Run]:
        """Let time pass: every job runs at its own time on the way, and so do its retries. Returns the runs.

        ``to`` is a time instead of a length. What is due now runs first, also if no time passes.
        """
        if to is None:
            to = self.now + timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
        before, end = len(self.store.runs), to_ms(to)
        if end < self.clock():
            raise InvalidInput("to", f"{to} is before now ({self.now})", "time only goes forward")
        await self._pass(end)
        self.clock.move_to(end)
        return self.store.runs[before:]

    async def drain(self) -> list[Run]:
        """Let time pass until no job waits any more, whatever comes of it, and return the runs.

        A job that always asks for another run (`Snooze`) never lets it end but for ``within``.
        """
        before = len(self.store.runs)
        await self._pass(None)
        return self.store.runs[before:]

    # ---- what happened ----------------------------------------------------------------------------------------------

    @property
    def now(self) -> datetime:
        """The time on the clock of the test, in UTC."""
        return self.clock.now

    @property
    def runs(self) -> list[Run]:
        """Every run so far, in the order they began."""
        return list(self.store.runs)

    @property
    def failures(self) -> list[Run]:
        """The runs that failed, each with its ``error``."""
        return [run for run in self.store.runs if run.failed]

    def delayed(self, queue: str | None = None) -> list[Delayed]:
        """Return the jobs that wait for their time or their retry, earliest first."""
        return [Delayed(job, from_ms(at)) for at, job in self.store.waiting(self._named(queue))]

    async def dead(self, queue: str | None = None) -> list[Job]:
        """Return the dead jobs, with ``last_error`` and ``history``."""
        return [dead.job async for dead in dead_jobs(self.store, self._named(queue)) if dead.job is not None]

    async def counts(self, queue: str | None = None) -> dict[str, int]:
        """Return how many jobs are in each state that holds any: ``ready``, ``scheduled``, ``retry``, ``dead`` ..."""
        topology = await self.store.read_topology(self._named(queue))
        refs = [ref for version in topology.versions for ref in topology.refs(version)] if topology else []
        total: Counter[str] = Counter()
        for counts in await self.store.counts(refs):
            total.update(counts.nonempty())
        return dict(total)

    # ---- start and end ----------------------------------------------------------------------------------------------

    async def __aenter__(self) -> TestQueue:
        for queue in self._settings.queue_names:
            await promote(self.store, queue, 1, self._partitions, settings=self._queue_settings)
        self._worker = Worker(self._app, self.store, self._settings, self._metrics, settle_delay=0.0)
        self._working = asyncio.create_task(self._worker.run())
        self._working.add_done_callback(lambda _: self._note_change())
        started = asyncio.create_task(self._worker.started.wait())
        await asyncio.wait([self._working, started], return_when=asyncio.FIRST_COMPLETED)
        started.cancel()
        if self._working.done():
            self._working.result()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._worker is not None and self._working is not None:
            await self._worker.stop(at_once=True)
            await self._working

    # ---- parts ------------------------------------------------------------------------------------------------------

    def _named(self, queue: str | None) -> str:
        return self._settings.queue_names[0] if queue is None else queue

    def _note_change(self) -> None:
        if self._change is not None and not self._change.done():
            self._change.set_result(None)

    async def _pass(self, end: int | None) -> None:
        """Let everything run that is due until ``end`` (ms; None: until nothing waits), each job at its time."""
        if self._worker is None or self._working is None:
            raise RuntimeError("the worker does not run; use the queue as `async with TestQueue(app) as queue`")
        self.store.gate.set()
        try:
            async with asyncio.timeout(self._within):
                await self._idle(self._working)
                while (following := self.store.next_time()) is not None and (end is None or following <= end):
                    self.clock.move_to(following)
                    for queue in self._settings.queue_names:
                        await self.store.tick(queue, self._worker.identity)
                    await self._idle(self._working)
        except TimeoutError:
            types = sorted({run.job.type for run in self.store.running})
            what = f"still running: {', '.join(types)}" if types else f"the time of the queue is {self.now}"
            raise TimeoutError(f"the queue is not idle after {self._within} s of real time; {what}") from None
        finally:
            self.store.gate.clear()

    async def _idle(self, working: asyncio.Task[Ending]) -> None:
        while not self.store.quiet():
            if working.done():
                raise RuntimeError("the worker has ended") from working.exception()
            self._change = asyncio.get_running_loop().create_future()
            await self._change
