"""The producer for code without an event loop: a web framework's view, a script, a management command."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Generator, Iterable
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, TypeVar

from headrace.errors import HeadraceError
from headrace.forks import check_process, this_process
from headrace.job_fields import Priority
from headrace.job_status import JobStatus, State
from headrace.producer import Enqueued, JobSpec, Producer
from headrace.retry import RetryPolicy
from headrace.stores.base import Store
from headrace.waiting import DEFAULT_TIMEOUT
from headrace.withdrawal import Cancellation

T = TypeVar("T")


class SyncProducer:
    """A `Producer` with plain methods, safe to share between threads. Use as a context manager or `close` it.

    ``store`` is a URL (see `headrace.stores.open_store`) or a Store that nobody else uses. One background thread with
    an event loop of its own does the work, so concurrent calls share one connection. That thread is not there after a
    fork, where calls raise HeadraceError: make one per process.
    """

    def __init__(self, store: str | Store, *, prefix: str = "headrace", **options: Any) -> None:
        self._producer = Producer(store, prefix=prefix, **options)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="headrace-producer", daemon=True)
        self._thread.start()
        self._closed = False
        self._lock = threading.Lock()
        self._process = this_process()

    def enqueue(
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
        """Put one job into ``queue``; see `Producer.enqueue`."""
        return self._run(
            self._producer.enqueue(
                queue,
                type,
                payload,
                id=id,
                run_at=run_at,
                delay=delay,
                max_retries=max_retries,
                timeout=timeout,
                headers=headers,
                priority=priority,
                retry=retry,
            )
        )

    def enqueue_many(self, queue: str, jobs: Iterable[JobSpec]) -> list[Enqueued]:
        """Put many jobs into ``queue``; see `Producer.enqueue_many`."""
        return self._run(self._producer.enqueue_many(queue, jobs))

    def enqueue_each(self, queue: str, jobs: Iterable[JobSpec]) -> list[Enqueued | HeadraceError]:
        """Put many jobs into ``queue`` and tell of each what became of it; see `Producer.enqueue_each`."""
        return self._run(self._producer.enqueue_each(queue, jobs))

    def status(self, queue: str, id: str) -> JobStatus:
        """Return where a job is; see `Producer.status`."""
        return self._run(self._producer.status(queue, id))

    def statuses(self, queue: str, ids: Iterable[str]) -> dict[str, JobStatus]:
        """Return where each of many jobs is; see `Producer.statuses`."""
        return self._run(self._producer.statuses(queue, ids))

    def cancel(self, queue: str, id: str, *, running: bool = True) -> Cancellation:
        """Remove a live job for good; see `Producer.cancel`."""
        return self._run(self._producer.cancel(queue, id, running=running))

    def watch(
        self, queue: str, ids: Iterable[str], *, timeout: float | None = DEFAULT_TIMEOUT
    ) -> Generator[JobStatus, None, None]:
        """Yield the status of each job, and each change of it that is seen; see `Producer.watch`."""
        changes = self._producer.watch(queue, ids, timeout=timeout)

        async def following() -> JobStatus | None:
            return await anext(changes, None)

        try:
            while (change := self._run(following())) is not None:
                yield change
        finally:
            if not self._closed:
                self._run(changes.aclose())

    def wait(
        self, queue: str, ids: Iterable[str], *, status: State | None = None, timeout: float | None = DEFAULT_TIMEOUT
    ) -> dict[str, JobStatus]:
        """Wait until each job has ended, or was seen in ``status``; see `Producer.wait`."""
        return self._run(self._producer.wait(queue, ids, status=status, timeout=timeout))

    def wait_until_empty(self, queue: str, *, timeout: float | None = DEFAULT_TIMEOUT) -> None:
        """Wait until the queue holds no live job; see `Producer.wait_until_empty`."""
        self._run(self._producer.wait_until_empty(queue, timeout=timeout))

    def result(self, queue: str, id: str, *, timeout: float | None = DEFAULT_TIMEOUT) -> Any:
        """Wait until a job has ended, and return what its handler returned; see `Producer.result`."""
        return self._run(self._producer.result(queue, id, timeout=timeout))

    def _run(self, call: Coroutine[Any, Any, T]) -> T:
        if self._process != this_process():  # before the lock, which may be held for ever there
            call.close()
            check_process("SyncProducer", self._process)
        with self._lock:  # so that `close` knows of every call that was let in
            if self._closed:
                call.close()
                raise HeadraceError("this SyncProducer is closed; make a new one")
            under_way = asyncio.run_coroutine_threadsafe(call, self._loop)
        return under_way.result()

    def close(self) -> None:
        """Wait for calls under way, close the connection and end the thread; after a fork, do nothing. Idempotent."""
        if self._process != this_process():  # connection and thread are of the process that made them
            return
        with self._lock:
            if self._closed:
                return
            self._closed = True
        asyncio.run_coroutine_threadsafe(self._producer.aclose(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def __enter__(self) -> SyncProducer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
