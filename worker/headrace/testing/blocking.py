"""TestQueue for tests without an event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterable
from datetime import datetime
from types import TracebackType
from typing import Any, TypeVar

from headrace.app import App
from headrace.job import Job
from headrace.producer import Enqueued, JobSpec
from headrace.testing.queue import Delayed, TestQueue
from headrace.testing.recording import RecordingStore, Run
from headrace.withdrawal import Cancellation

T = TypeVar("T")


class BlockingTestQueue:
    """A `TestQueue` with plain methods, used as ``with``: for tests of Django or Flask, for instance.

    The arguments and methods are those of TestQueue. The worker runs in a thread of its own.
    """

    def __init__(self, app: App, **options: Any) -> None:
        self._queue = TestQueue(app, **options)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="headrace-test-queue", daemon=True)

    def __enter__(self) -> BlockingTestQueue:
        self._thread.start()
        try:
            self._call(self._queue.__aenter__())
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._call(self._queue.__aexit__(kind, error, trace))
        finally:
            self._end()

    def enqueue(self, type: str, payload: Any = None, *, queue: str | None = None, **options: Any) -> Enqueued:
        """Put one job into the queue; it does not run yet."""
        return self._call(self._queue.enqueue(type, payload, queue=queue, **options))

    def enqueue_many(self, jobs: Iterable[JobSpec], *, queue: str | None = None) -> list[Enqueued]:
        """Put many jobs into the queue."""
        return self._call(self._queue.enqueue_many(jobs, queue=queue))

    def cancel(self, id: str, *, queue: str | None = None) -> Cancellation:
        """Remove a live job for good."""
        return self._call(self._queue.cancel(id, queue=queue))

    def run_until_idle(self) -> list[Run]:
        """Run everything that is due now, and what it leads to; return these runs."""
        return self._call(self._queue.run_until_idle())

    def advance(
        self, *, days: float = 0, hours: float = 0, minutes: float = 0, seconds: float = 0, to: datetime | None = None
    ) -> list[Run]:
        """Let time pass; return the runs."""
        return self._call(self._queue.advance(days=days, hours=hours, minutes=minutes, seconds=seconds, to=to))

    def drain(self) -> list[Run]:
        """Let time pass until no job waits any more; return the runs."""
        return self._call(self._queue.drain())

    @property
    def store(self) -> RecordingStore:
        """The store, for a producer of the application: ``SyncProducer(queue.store)``."""
        return self._queue.store

    @property
    def now(self) -> datetime:
        """The time on the clock of the test, in UTC."""
        return self._queue.now

    @property
    def runs(self) -> list[Run]:
        """Every run so far, in the order they began."""
        return self._queue.runs

    @property
    def failures(self) -> list[Run]:
        """The runs that failed, each with its ``error``."""
        return self._queue.failures

    def delayed(self, queue: str | None = None) -> list[Delayed]:
        """Return the jobs that wait for their time or their retry, earliest first."""
        return self._queue.delayed(queue)

    def dead(self, queue: str | None = None) -> list[Job]:
        """Return the dead jobs."""
        return self._call(self._queue.dead(queue))

    def counts(self, queue: str | None = None) -> dict[str, int]:
        """Return how many jobs are in each state that holds any."""
        return self._call(self._queue.counts(queue))

    def _call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
