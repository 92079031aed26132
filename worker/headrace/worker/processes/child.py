"""The process that runs handlers: one call at a time, until the worker closes the connection, or is gone."""

from __future__ import annotations

import asyncio
import contextvars
import faulthandler
import inspect
import logging
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from queue import SimpleQueue
from typing import Any

from headrace.arguments import Arguments, handler_arguments
from headrace.context import BatchContext, Context, enter
from headrace.errors import InvalidPayload
from headrace.job import Job
from headrace.location import Location, resolve
from headrace.worker.batches import fitting, item_results
from headrace.worker.outcomes import error_text
from headrace.worker.processes import messages
from headrace.worker.unawaited import unawaited

REPORT_SECONDS = 0.1
COMMAND = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from headrace.worker.processes.child import main; main(int(sys.argv[2]))"
)
"""Run by ``python -c`` with the search path for modules as JSON and the descriptor of the connection."""


def main(descriptor: int) -> None:
    """Serve calls until the connection ends."""
    faulthandler.enable()  # a crash tells its stack
    connection = Connection(socket.socket(fileno=descriptor))
    _, locations, level = connection.receive() or sys.exit(0)
    root = logging.getLogger()
    root.setLevel(level)
    root.addHandler(Forwarding(connection))
    try:
        functions = [Function(Location(*location), batch) for location, batch in locations]
    except BaseException as error:
        connection.send("failed", error_text(error))
        sys.exit(1)
    connection.send("ready")
    calls: SimpleQueue[list[Any] | None] = SimpleQueue()
    threading.Thread(target=_listen, args=(connection, calls), daemon=True).start()
    with asyncio.Runner() as runner:
        while (call := calls.get()) is not None:
            connection.busy = True
            connection.send("began")
            _, number, *rest = call
            reporter = Reporter(connection)
            outcome = contextvars.Context().run(functions[number].run, runner, reporter, *rest)
            reporter.close()
            sys.stdout.flush()
            sys.stderr.flush()
            connection.busy = False
            connection.send("ended", outcome)


class Connection:
    """The connection to the worker; any thread may send."""

    def __init__(self, connected: socket.socket) -> None:
        self._connected = connected
        self._sending = threading.Lock()
        self.busy = False

    def send(self, kind: str, *fields: Any) -> None:
        """Send a frame."""
        with self._sending:
            self._connected.sendall(messages.frame(kind, *fields))

    def receive(self) -> list[Any] | None:
        """Wait for a frame; None at the end."""
        head = self._read(messages.LENGTH.size)
        body = head and self._read(messages.LENGTH.unpack(head)[0])
        return messages.opened(body) if body else None

    def _read(self, size: int) -> bytes:
        parts = []
        while size:
            part = self._connected.recv(min(size, 1 << 20))
            if not part:
                return b""
            parts.append(part)
            size -= len(part)
        return b"".join(parts)


def _listen(connection: Connection, calls: SimpleQueue[list[Any] | None]) -> None:
    """Take calls in a thread of its own: a handler must not go on when its worker is gone."""
    while True:
        try:
            call = connection.receive()
        except OSError:
            call = None
        if call is None and connection.busy:
            os._exit(1)
        calls.put(call)
        if call is None:
            return


class Reporter:
    """Tells the worker of the progress of one call: the last report of each job, at most ten times a second."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._lock = threading.Lock()
        self._last: dict[int, tuple[float, str]] = {}
        self._timer: threading.Timer | None = None
        self._next = 0.0
        self._closed = False

    def report(self, number: int, value: float, note: str) -> None:
        """Take a report of the job of this number."""
        with self._lock:
            self._last[number] = (value, note)
            wait = self._next - time.monotonic()
            if wait > 0:
                if self._timer is None:
                    self._timer = threading.Timer(wait, self.flush)
                    self._timer.daemon = True
                    self._timer.start()
                return
        self.flush()

    def close(self) -> None:
        """Tell what has not been told; a thread that goes on after the call tells nothing more."""
        self.flush()
        with self._lock:
            self._closed = True

    def flush(self) -> None:
        """Tell what has not been told."""
        with self._lock:
            if self._closed:
                return
            self._next = time.monotonic() + REPORT_SECONDS
            self._timer = None
            last, self._last = self._last, {}
            for number, (value, note) in last.items():
                self._connection.send("progress", number, value, note)


class Run(Context):
    """A run of a single job, which has a number within its call."""

    __slots__ = ("_number", "_reporter")

    def __init__(self, job: Job, fencing_token: int, deadline: float, reporter: Reporter, number: int) -> None:
        super().__init__(job, deadline, fencing_token)
        self._reporter = reporter
        self._number = number

    def _report(self, value: float, note: str) -> None:
        self._reporter.report(self._number, value, note)


class BatchRun(BatchContext):
    """A run of many jobs."""

    __slots__ = ("_runs", "refused")

    def __init__(self, runs: Sequence[Context], deadline: float) -> None:
        super().__init__(runs[0].job, deadline)
        self._runs = tuple(runs)
        self.refused: Mapping[int, InvalidPayload] = {}

    @property
    def runs(self) -> tuple[Context, ...]:
        """The runs of the jobs that the handler is given."""
        return self._runs

    def refuse(self, errors: Mapping[int, InvalidPayload]) -> None:
        """Take out the runs at these positions."""
        self.refused = errors
        self._runs = tuple(run for position, run in enumerate(self._runs) if position not in errors)

    def results(self, returned: object) -> list[object]:
        """Return a result for each of the jobs, those that were taken out included."""
        results = iter(item_results(returned, len(self._runs)))
        jobs = len(self._runs) + len(self.refused)
        return [self.refused[n] if n in self.refused else next(results) for n in range(jobs)]


class Function:
    """A handler function."""

    def __init__(self, location: Location, batch: bool) -> None:
        self._call: Callable[..., Any] = resolve(location)
        self._batch = batch
        self._arguments: Arguments = handler_arguments(repr(location.name), self._call, {}, {}, batch=batch)
        self._is_async = inspect.iscoroutinefunction(self._call)

    def run(
        self,
        runner: asyncio.Runner,
        reporter: Reporter,
        jobs: list[Any],
        seconds: float,
        payloads: list[Any] | None,
    ) -> messages.Outcome:
        """Run the function on its jobs and return the outcome."""
        try:
            deadline = time.monotonic() + seconds
            runs = [Run(*messages.unpacked_job(job), deadline, reporter, n) for n, job in enumerate(jobs)]
            values = [run.job.payload for run in runs] if payloads is None else map(messages.unpacked_value, payloads)
            run = self._run_batch if self._batch else self._run_one
            return run(runner, runs, list(values))
        except BaseException as error:  # SystemExit too: it has failed like any other run
            return messages.raised(error)

    def _run_one(self, runner: asyncio.Runner, runs: list[Run], payloads: list[Any]) -> messages.Outcome:
        (ctx,), (payload,) = runs, payloads
        enter(ctx)
        if self._arguments.validate is not None:
            payload = self._arguments.validate(payload)
        return messages.returned(self._returned(runner, ctx, payload))

    def _run_batch(self, runner: asyncio.Runner, runs: list[Run], payloads: list[Any]) -> messages.Outcome:
        ctx = BatchRun(runs, runs[0].deadline)
        enter(ctx)
        fit = fitting(ctx, payloads, self._arguments.validate)
        return messages.each(ctx.results(self._returned(runner, ctx, fit) if fit else None))

    def _returned(self, runner: asyncio.Runner, ctx: Context, payload: Any) -> Any:
        if self._is_async:
            returned = runner.run(self._call(ctx, payload), context=contextvars.copy_context())
        else:
            returned = self._call(ctx, payload)
        if (forgotten := unawaited(returned)) is not None:
            raise forgotten
        return returned


_OBJECTS = {"args", "exc_info"}


class Forwarding(logging.Handler):
    """Sends log records to the worker, which writes them as its own."""

    def __init__(self, connection: Connection) -> None:
        super().__init__()
        self._connection = connection

    def emit(self, record: logging.LogRecord) -> None:
        """Send a record, its message and its error as text."""
        fields = {name: _plain(value) for name, value in vars(record).items() if name not in _OBJECTS}
        fields["msg"] = record.getMessage()
        if record.exc_info and record.exc_info[0] is not None:
            fields["exc_text"] = logging.Formatter().formatException(record.exc_info)
        try:
            self._connection.send("log", fields)
        except Exception:
            self.handleError(record)


def _plain(value: object) -> object:
    if value is None or isinstance(value, str | bool | float) or (isinstance(value, int) and abs(value) < 1 << 63):
        return value
    return str(value)
