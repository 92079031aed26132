"""Spans of OpenTelemetry: one for sending a job, one for each run of it, linked. Needs ``headrace[otel]``.

The context of the sender travels in the job's headers (``traceparent`` with the default propagator). A run is not a
child of its sender's span, which may be days old, but has a link to it.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from opentelemetry import propagate
from opentelemetry.metrics import MeterProvider, get_meter_provider
from opentelemetry.trace import Link, Span, SpanKind, StatusCode, Tracer, TracerProvider, get_current_span, get_tracer

from headrace.app import App, CallNext
from headrace.context import BatchContext, Context
from headrace.control import Snooze
from headrace.errors import HeadraceError
from headrace.producer import Enqueued, JobSpec, Producer
from headrace.sync_producer import SyncProducer
from headrace.telemetry.counts import BUCKETS
from headrace.telemetry.otel import CALLS, SYSTEM


def traced(app: App, provider: TracerProvider | None = None) -> App:
    """Return an App with what is registered in ``app`` so far, each run in a span ``process QUEUE``.

    ``provider``: default the global one. The span is current in middleware and handler, also in its thread.
    """
    tracer = get_tracer("headrace", tracer_provider=provider)

    async def trace(ctx: Context, payload: Any, call_next: CallNext) -> Any:
        with _process(tracer, ctx):
            return await call_next(ctx, payload)

    return app.wrapped(trace)


class TracedProducer:
    """A `Producer` that makes a span ``send QUEUE`` for each call and sends its context along in the headers.

    It also counts ``messaging.client.sent.messages`` and records ``messaging.client.operation.duration``. Providers:
    default the global ones.
    """

    def __init__(
        self, producer: Producer, provider: TracerProvider | None = None, meters: MeterProvider | None = None
    ) -> None:
        self._producer = producer
        self._sending = _Sending(provider, meters)

    async def enqueue(
        self, queue: str, type: str, payload: Any = None, *, headers: dict[str, str] | None = None, **options: Any
    ) -> Enqueued:
        """Put one job into ``queue``; see `Producer.enqueue`."""
        with self._sending.one(queue, type) as placed:
            placed.append(await self._producer.enqueue(queue, type, payload, headers=_injected(headers), **options))
        return placed[0]

    async def enqueue_many(self, queue: str, jobs: Iterable[JobSpec]) -> list[Enqueued]:
        """Put many jobs into ``queue``; see `Producer.enqueue_many`."""
        with self._sending.many(queue) as placed:
            placed += await self._producer.enqueue_many(queue, _all_injected(jobs))
        return placed

    async def enqueue_each(self, queue: str, jobs: Iterable[JobSpec]) -> list[Enqueued | HeadraceError]:
        """Put many jobs into ``queue`` and tell of each what became of it; see `Producer.enqueue_each`."""
        with self._sending.many(queue) as placed:
            outcomes = await self._producer.enqueue_each(queue, _all_injected(jobs))
            placed += [outcome for outcome in outcomes if isinstance(outcome, Enqueued)]
        return outcomes

    async def aclose(self) -> None:
        """Close the producer."""
        await self._producer.aclose()


class TracedSyncProducer:
    """A `SyncProducer` that does what `TracedProducer` does."""

    def __init__(
        self, producer: SyncProducer, provider: TracerProvider | None = None, meters: MeterProvider | None = None
    ) -> None:
        self._producer = producer
        self._sending = _Sending(provider, meters)

    def enqueue(
        self, queue: str, type: str, payload: Any = None, *, headers: dict[str, str] | None = None, **options: Any
    ) -> Enqueued:
        """Put one job into ``queue``; see `Producer.enqueue`."""
        with self._sending.one(queue, type) as placed:
            placed.append(self._producer.enqueue(queue, type, payload, headers=_injected(headers), **options))
        return placed[0]

    def enqueue_many(self, queue: str, jobs: Iterable[JobSpec]) -> list[Enqueued]:
        """Put many jobs into ``queue``; see `Producer.enqueue_many`."""
        with self._sending.many(queue) as placed:
            placed += self._producer.enqueue_many(queue, _all_injected(jobs))
        return placed

    def enqueue_each(self, queue: str, jobs: Iterable[JobSpec]) -> list[Enqueued | HeadraceError]:
        """Put many jobs into ``queue`` and tell of each what became of it; see `Producer.enqueue_each`."""
        with self._sending.many(queue) as placed:
            outcomes = self._producer.enqueue_each(queue, _all_injected(jobs))
            placed += [outcome for outcome in outcomes if isinstance(outcome, Enqueued)]
        return outcomes

    def close(self) -> None:
        """Close the producer."""
        self._producer.close()


# ---- sending --------------------------------------------------------------------------------------------------------


class _Sending:
    """Spans and metrics of calls that enqueue; the block of each puts the results into the list that it is given."""

    def __init__(self, provider: TracerProvider | None, meters: MeterProvider | None) -> None:
        self._tracer = get_tracer("headrace", tracer_provider=provider)
        meter = (meters or get_meter_provider()).get_meter("headrace")
        self._sent = meter.create_counter("messaging.client.sent.messages", "{message}", "Jobs sent.")
        self._durations = meter.create_histogram(
            CALLS.name, "s", CALLS.text, explicit_bucket_boundaries_advisory=BUCKETS
        )

    @contextmanager
    def one(self, queue: str, type: str) -> Iterator[list[Enqueued]]:
        with self._send(queue) as (span, placed):
            yield placed
            span.set_attributes({"messaging.message.id": placed[0].id, "headrace.job.type": type})

    @contextmanager
    def many(self, queue: str) -> Iterator[list[Enqueued]]:
        with self._send(queue) as (span, placed):
            yield placed
            span.set_attribute("messaging.batch.message_count", len(placed))

    @contextmanager
    def _send(self, queue: str) -> Iterator[tuple[Span, list[Enqueued]]]:
        attributes = _attributes("send", queue)
        placed: list[Enqueued] = []
        began = time.monotonic()
        with self._tracer.start_as_current_span(f"send {queue}", kind=SpanKind.PRODUCER, attributes=attributes) as span:
            try:
                yield span, placed
            except Exception as error:
                attributes["error.type"] = type(error).__qualname__
                span.set_attributes(attributes)
                raise
            finally:
                self._durations.record(time.monotonic() - began, attributes)
                if placed:
                    self._sent.add(len(placed), attributes)


def _injected(headers: Any) -> Any:
    if headers is not None and not isinstance(headers, dict):
        return headers  # the producer refuses them, by name
    carrier: dict[str, str] = dict(headers or {})
    propagate.inject(carrier)
    return carrier


def _all_injected(jobs: Any) -> Any:
    if not isinstance(jobs, Iterable):
        return jobs
    return [replace(job, headers=_injected(job.headers)) if isinstance(job, JobSpec) else job for job in jobs]


# ---- processing -----------------------------------------------------------------------------------------------------


@contextmanager
def _process(tracer: Tracer, ctx: Context) -> Iterator[None]:
    job = ctx.job
    attributes = _attributes("process", job.queue) | {"headrace.job.type": job.type}
    if isinstance(ctx, BatchContext):
        attributes["messaging.batch.message_count"] = len(ctx.runs)
    else:
        attributes |= {
            "messaging.message.id": job.id,
            "headrace.job.attempt": job.attempt,
            "headrace.queue.version": job.version,
        }
    senders = (get_current_span(propagate.extract(run.job.headers)).get_span_context() for run in ctx.runs)
    with tracer.start_as_current_span(
        f"process {job.queue}",
        kind=SpanKind.CONSUMER,
        attributes=attributes,
        links=[Link(sender) for sender in senders if sender.is_valid],
        record_exception=False,
        set_status_on_exception=False,
    ) as span:
        try:
            yield
        except Snooze:
            raise  # not a failure
        except BaseException as error:
            span.record_exception(error)
            span.set_attribute("error.type", type(error).__qualname__)
            span.set_status(StatusCode.ERROR, str(error))
            raise


def _attributes(operation: str, queue: str) -> dict[str, str | int]:
    return {
        **SYSTEM,
        "messaging.operation.name": operation,
        "messaging.operation.type": operation,
        "messaging.destination.name": queue,
    }
