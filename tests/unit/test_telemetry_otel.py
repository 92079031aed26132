"""Metrics and traces of a real worker on the memory store, as OpenTelemetry receives them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any, cast

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import HistogramDataPoint, InMemoryMetricReader, NumberDataPoint
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode, get_current_span

from headrace import (
    App,
    BatchContext,
    Context,
    Dead,
    InvalidInput,
    JobSpec,
    RetryPolicy,
    Snooze,
    SyncProducer,
)
from headrace.telemetry.counts import BUCKETS, MAX_LABEL_SETS, OTHER
from headrace.telemetry.otel import OpenTelemetryMetrics
from headrace.telemetry.tracing import TracedProducer, TracedSyncProducer, traced
from headrace.testing import BlockingTestQueue, TestQueue
from headrace.worker.metrics import Readings

ONCE = RetryPolicy(max_retries=1, strategy="linear", base_ms=1000)


def application() -> App:
    app = App()

    @app.handler("send", retry=ONCE)
    async def send(ctx: Context, payload: Any) -> None:
        if payload == "bad":
            raise ValueError("no")
        if payload == "dead":
            raise Dead("not an address")
        if payload == "later" and not ctx.job.history:
            raise Snooze(timedelta(minutes=1))

    return app


async def test_opentelemetry_receives_the_messaging_metrics() -> None:
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])
    metrics = OpenTelemetryMetrics(provider)
    async with TestQueue(application(), metrics=metrics) as queue:
        await queue.enqueue_many([JobSpec("send", each) for each in ("good", "bad")])
        await queue.drain()
        metrics.leases_lost("q", 3)
        metrics.poisoned("q", 1)
        metrics.acks_refused("q", 2)
        metrics.store_unavailable()
        points = points_of(reader)
    (consumed,) = points["messaging.client.consumed.messages"]
    assert isinstance(consumed, NumberDataPoint)
    assert consumed.value == 3
    assert consumed.attributes == {
        "messaging.system": "headrace",
        "messaging.operation.name": "claim",
        "messaging.operation.type": "receive",
        "messaging.destination.name": "default",
    }
    durations = cast(list[HistogramDataPoint], points["messaging.process.duration"])
    assert {(each.attributes or {}).get("error.type"): each.count for each in durations} == {None: 1, "_OTHER": 2}
    assert durations[0].explicit_bounds == BUCKETS
    finished = cast(list[NumberDataPoint], points["headrace.jobs.finished"])
    assert {(each.attributes or {})["headrace.outcome"]: each.value for each in finished} == {
        "succeeded": 1,
        "retried": 1,
        "dead": 1,
    }
    calls = cast(list[HistogramDataPoint], points["messaging.client.operation.duration"])
    assert {(each.attributes or {})["messaging.operation.type"] for each in calls} == {"receive", "settle"}
    slots = cast(list[NumberDataPoint], points["headrace.slots"])
    assert {(each.attributes or {})["headrace.slot.state"]: each.value for each in slots} == {"busy": 0, "free": 16}
    single = {name: found[0].value for name, found in points.items() if isinstance(found[0], NumberDataPoint)}
    assert single["headrace.leases.lost"] == 3
    assert single["headrace.jobs.poisoned"] == 1
    assert single["headrace.acks.refused"] == 2
    assert single["headrace.store.unanswered_calls"] == 1
    provider.shutdown()


def points_of(reader: InMemoryMetricReader) -> dict[str, Any]:
    """Data points by the name of their metric."""
    data = reader.get_metrics_data()
    assert data is not None
    return {
        metric.name: list(metric.data.data_points)
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }


@pytest.fixture
def exported() -> Iterator[tuple[TracerProvider, InMemorySpanExporter]]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    yield provider, exporter
    provider.shutdown()


async def test_types_that_nobody_foresaw_do_not_fill_the_instruments() -> None:
    """Producers name types: those of jobs that are parked here are known to nobody."""
    reader = InMemoryMetricReader()
    metrics = OpenTelemetryMetrics(MeterProvider([reader]))
    async with TestQueue(application(), metrics=metrics) as queue:
        await queue.enqueue_many([JobSpec(f"strange-{number}", None) for number in range(300)])
        await queue.run_until_idle()
        finished = cast(list[NumberDataPoint], points_of(reader)["headrace.jobs.finished"])
    types = {str((each.attributes or {})["headrace.job.type"]) for each in finished}
    assert len(types) == MAX_LABEL_SETS + 1
    assert OTHER in types
    assert sum(each.value for each in finished) == 300


async def test_the_clock_and_the_claim_loop_are_shown() -> None:
    reader = InMemoryMetricReader()
    metrics = OpenTelemetryMetrics(MeterProvider([reader]))
    metrics.started(lambda: Readings(4, 1, 2.5, clock_ahead=-3.0))
    metrics.started(lambda: Readings(4, 1, 0.5, clock_ahead=1.0))
    points = points_of(reader)
    for name, value in (("headrace.claim_cycle.age", 2.5), ("headrace.clock.ahead", -3.0)):
        (point,) = points[name]
        assert isinstance(point, NumberDataPoint)
        assert point.value == value


async def test_a_run_is_linked_to_the_span_that_sent_its_job(
    exported: tuple[TracerProvider, InMemorySpanExporter],
) -> None:
    provider, exporter = exported
    seen: list[int] = []
    app = App()

    @app.handler("plain")
    def plain(ctx: Context, payload: Any) -> None:
        seen.append(get_current_span().get_span_context().span_id)

    @app.handler("send", retry=RetryPolicy(max_retries=0))
    async def send(ctx: Context, payload: Any) -> None:
        seen.append(get_current_span().get_span_context().span_id)
        if payload == "snooze" and not ctx.job.history:
            raise Snooze(timedelta(minutes=1))
        if payload == "bad":
            raise ValueError("no")

    async with TestQueue(traced(app, provider)) as queue:
        producer = TracedProducer(queue.producer, provider)
        with provider.get_tracer("app").start_as_current_span("request"):
            placed = await producer.enqueue("default", "send", "bad", headers={"mine": "kept"})
        await producer.enqueue_many("default", [JobSpec("send", "snooze"), JobSpec("plain")])
        await queue.enqueue("send")  # by a sender without traces
        runs = await queue.drain()
    assert runs[0].job.headers.keys() == {"mine", "traceparent"}
    spans = exporter.get_finished_spans()
    sent = [span for span in spans if span.kind == SpanKind.PRODUCER]
    assert [span.name for span in sent] == ["send default", "send default"]
    request = next(span for span in spans if span.name == "request")
    assert sent[0].parent is not None
    assert sent[0].parent.span_id == context(request).span_id
    processed = [span for span in spans if span.kind == SpanKind.CONSUMER]
    assert len(processed) == len(runs) == 5
    assert sorted(seen) == sorted(context(span).span_id for span in processed)
    links = {
        (dict(span.attributes or {})["messaging.message.id"], *(link.context.span_id for link in span.links))
        for span in processed
    }
    ids = {run.job.payload or run.job.type: run.job.id for run in runs}
    assert links == {
        (placed.id, context(sent[0]).span_id),
        (ids["snooze"], context(sent[1]).span_id),
        (ids["plain"], context(sent[1]).span_id),
        (ids["send"],),
    }
    failed = next(span for span in processed if dict(span.attributes or {})["messaging.message.id"] == placed.id)
    assert failed.name == "process default"
    assert failed.parent is None  # linked, not a child: a job may run days later
    assert dict(failed.attributes or {}) == {
        "messaging.system": "headrace",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": "default",
        "messaging.message.id": placed.id,
        "headrace.job.type": "send",
        "headrace.job.attempt": 0,
        "headrace.queue.version": 1,
        "error.type": "ValueError",
    }
    assert [event.name for event in failed.events] == ["exception"]
    statuses = [span.status.status_code for span in processed]
    assert statuses.count(StatusCode.ERROR) == 1  # a snooze is no failure


def context(span: ReadableSpan) -> Any:
    found = span.get_span_context()
    assert found is not None
    return found


async def test_a_batch_is_one_span_linked_to_all_that_sent_its_jobs(
    exported: tuple[TracerProvider, InMemorySpanExporter],
) -> None:
    provider, exporter = exported
    app = App()

    @app.batch_handler("index", max_size=2, max_wait=60)
    async def index(ctx: BatchContext, payloads: Any) -> None: ...

    async with TestQueue(traced(app, provider)) as queue:
        producer = TracedProducer(queue.producer, provider)
        for number in range(2):
            await producer.enqueue("default", "index", number)
        await queue.drain()
    spans = exporter.get_finished_spans()
    sent = {context(span).span_id for span in spans if span.kind == SpanKind.PRODUCER}
    (processed,) = [span for span in spans if span.kind == SpanKind.CONSUMER]
    assert {link.context.span_id for link in processed.links} == sent
    assert len(sent) == 2
    attributes = dict(processed.attributes or {})
    assert (attributes["messaging.batch.message_count"], attributes["headrace.job.type"]) == (2, "index")
    assert "messaging.message.id" not in attributes


def test_the_plain_producer_sends_its_context_too(exported: tuple[TracerProvider, InMemorySpanExporter]) -> None:
    provider, exporter = exported
    reader = InMemoryMetricReader()
    meters = MeterProvider([reader])
    with BlockingTestQueue(application()) as queue:
        producer = TracedSyncProducer(SyncProducer(queue.store), provider, meters)
        producer.enqueue("default", "send")
        producer.enqueue_many("default", [JobSpec("send")])
        with pytest.raises(Exception, match="does not exist"):
            producer.enqueue("nowhere", "send")
        producer.close()
        runs = queue.run_until_idle()
    assert ["traceparent" in run.job.headers for run in runs] == [True, True]
    points = points_of(reader)
    meters.shutdown()
    (sent,) = cast(list[NumberDataPoint], points["messaging.client.sent.messages"])
    assert (sent.value, (sent.attributes or {})["messaging.operation.type"]) == (2, "send")
    durations = cast(list[HistogramDataPoint], points["messaging.client.operation.duration"])
    assert {(each.attributes or {}).get("error.type"): each.count for each in durations} == {None: 2, "UnknownQueue": 1}
    last = exporter.get_finished_spans()[-1]
    assert dict(last.attributes or {})["error.type"] == "UnknownQueue"
    assert last.status.status_code == StatusCode.ERROR


async def test_what_a_traced_producer_is_given_wrong_is_refused_as_without_traces() -> None:
    async with TestQueue(application()) as queue:
        producer = TracedProducer(queue.producer, TracerProvider())
        wrong, number = cast(Any, ["a"]), cast(Any, 7)
        with pytest.raises(InvalidInput, match="headers"):
            await producer.enqueue("default", "send", headers=wrong)
        for jobs in (wrong, number):
            with pytest.raises(InvalidInput, match="JobSpec"):
                await producer.enqueue_many("default", jobs)
