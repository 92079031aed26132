"""Metrics of a real worker on the memory store, read as Prometheus reads them."""

from __future__ import annotations

import cProfile
import pstats
import sys
import time
from datetime import timedelta
from typing import Any, cast

import pytest
from prometheus_client.parser import text_string_to_metric_families

from headrace import (
    App,
    Context,
    Dead,
    InvalidInput,
    JobSpec,
    RetryPolicy,
    Snooze,
    Worker,
    WorkerSettings,
)
from headrace.job import HistoryEntry, Job
from headrace.setting_errors import InvalidSettings
from headrace.stores.base import Settled
from headrace.stores.memory import MemoryStore
from headrace.telemetry import open_metrics
from headrace.telemetry.counts import BUCKETS, MAX_LABEL_SETS, OTHER, CountingMetrics, Finished
from headrace.telemetry.otel import OpenTelemetryMetrics
from headrace.telemetry.prometheus import PrometheusMetrics
from headrace.testing import TestQueue
from headrace.topology import PartitionRef
from headrace.worker.execution import Executor
from headrace.worker.leases import Batch, Execution
from headrace.worker.measuring import MeasuringExecutor
from headrace.worker.metrics import NoMetrics, Readings
from headrace.worker.settlements import Outbox

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


def run(
    type: str = "send",
    *,
    due: float = 0.0,
    started: float | None = 0.0,
    seconds: float | None = 0.0,
    first: bool = True,
    timeout: float = 30.0,
) -> Execution:
    """A run: seconds are counted from the claim, ``due`` backwards. ``started`` None: it did not start."""
    batch = Batch(Outbox(PartitionRef("q", 1, 0)), b"w:1", 30_000, 10_000, 1_000_000_000, 500.0)
    history = () if first else (HistoryEntry("failed", 1, "w", "no"),)
    due_at = 1_000_000_000 - round(due * 1000)
    job = Job("id", "q", type, None, due_at, due_at, 1, 0, history=history)
    made = Execution(job, batch, Settled(b"1id", b"w:1"), cast(Any, None), round(timeout * 1000))
    if started is not None:
        made.deadline = 500.0 + started + timeout
        if seconds is not None:
            made.ended_at = 500.0 + started + seconds
    return made


# ---- what a run tells -----------------------------------------------------------------------------------------------


def test_the_times_of_a_run() -> None:
    made = run(due=3, started=1, seconds=0.5)
    assert made.seconds == pytest.approx(0.5)
    assert made.start_delay == pytest.approx(4.0)
    assert run(started=None).seconds is None
    assert run(started=None).start_delay is None
    assert run(first=False).start_delay is None
    assert run(seconds=None, timeout=7).seconds == 7  # timed out, and its code goes on
    assert run(due=-10).start_delay == 0  # clocks differ a little


def test_counts_are_those_of_the_runs() -> None:
    runs = [
        run(due=number % 7 / 10, started=number % 5 / 100, seconds=number % 11 / 50, first=number % 3 > 0)
        for number in range(100)
    ]
    runs += [run("other", seconds=0.005), run(started=None), run(seconds=None, timeout=4000), run("other", due=5000)]
    metrics = CountingMetrics()
    metrics.settled("q", "succeeded", runs[:50])
    metrics.settled("q", "succeeded", runs[50:])
    metrics.settled("q", "dead", [run()])
    assert metrics.finished() == {
        Finished("q", "send", "succeeded"): 102,
        Finished("q", "other", "succeeded"): 2,
        Finished("q", "send", "dead"): 1,
    }
    seconds = [each.seconds for each in [*runs, run()] if each.job.type == "send" and each.seconds is not None]
    send = metrics.durations()["q", "send"]
    assert send.total == pytest.approx(sum(seconds))
    assert [sum(send.buckets[: index + 1]) for index in range(len(BUCKETS))] == [
        sum(each <= bound for each in seconds) for bound in BUCKETS
    ]
    assert send.buckets[-1] == 1
    delays = [each.start_delay for each in [*runs, run()] if each.start_delay is not None]
    assert metrics.start_delays["q"].total == pytest.approx(sum(delays))
    assert sum(metrics.start_delays["q"].buckets) == len(delays)
    assert metrics.start_delays["q"].buckets[-1] == 1


def test_types_beyond_200_label_sets_are_one() -> None:
    metrics = CountingMetrics()
    for number in range(300):
        metrics.settled("q", "succeeded", [run(f"type-{number}")] * 2)
    metrics.settled("q", "dead", [run("type-1"), run("type-299")])
    finished = metrics.finished()
    assert len(finished) == MAX_LABEL_SETS + 2
    assert finished[Finished("q", "type-199", "succeeded")] == 2
    assert finished[Finished("q", OTHER, "succeeded")] == 200
    assert finished[Finished("q", OTHER, "dead")] == 2
    assert sum(finished.values()) == 602


def test_counting_a_thousand_runs_looks_up_each_type_and_calls_nothing_else_per_run() -> None:
    """Fast runs are the many; only a duration above the first bucket is looked up."""
    metrics = CountingMetrics()
    runs = [run(first=number % 2 > 0) for number in range(1000)]
    metrics.settled("q", "succeeded", runs)
    profile = cProfile.Profile()
    profile.runcall(metrics.settled, "q", "succeeded", runs)
    assert cast(Any, pstats.Stats(profile)).total_calls < 1010


# ---- the worker's part ----------------------------------------------------------------------------------------------


async def test_a_worker_without_metrics_measures_nothing() -> None:
    async with TestQueue(application()) as queue:
        assert queue._worker is not None
        assert type(queue._worker._executor) is Executor
        assert queue._worker._claims._store is queue.store


async def test_a_worker_with_metrics_tells_what_its_jobs_did() -> None:
    metrics = PrometheusMetrics()
    async with TestQueue(application(), metrics=metrics) as queue:
        assert queue._worker is not None
        assert type(queue._worker._executor) is MeasuringExecutor
        await queue.enqueue_many([JobSpec("send", each) for each in ("good", "good", "bad", "dead", "later")])
        await queue.enqueue("unknown")
        await queue.enqueue("send", delay=60)
        await queue.drain()
        shown = samples(metrics)
        assert shown["headrace_slots", ("state", "free")] == 16
        age = time.time() - shown["headrace_last_claim_cycle_timestamp_seconds",]
        assert 0 <= age < 60
    assert {key: value for key, value in shown.items() if key[0] == "headrace_jobs_finished_total"} == {
        ("headrace_jobs_finished_total", ("outcome", outcome), ("queue", "default"), ("type", type)): jobs
        for type, outcome, jobs in (
            ("send", "succeeded", 4),
            ("send", "retried", 1),
            ("send", "dead", 2),
            ("send", "snoozed", 1),
            ("unknown", "parked", 1),
        )
    }
    default = ("queue", "default")
    assert shown["headrace_claims_total", default] == 9
    assert shown["headrace_start_delay_seconds_count", default] == 6
    assert shown["headrace_process_duration_seconds_count", default, ("type", "send")] == 8
    assert shown["headrace_process_duration_seconds_bucket", ("le", "0.005"), default, ("type", "send")] <= 8
    assert shown["headrace_process_duration_seconds_bucket", ("le", "+Inf"), default, ("type", "send")] == 8
    assert shown["headrace_redis_script_duration_seconds_count", ("script", "claim")] >= 3
    assert shown["headrace_redis_script_duration_seconds_count", ("script", "fail")] >= 2
    assert ("headrace_slots", ("state", "busy")) in shown
    assert samples(metrics)["headrace_slots", ("state", "free")] == 0  # the worker has ended
    assert metrics.readings() == []


def samples(metrics: PrometheusMetrics) -> dict[Any, float]:
    """What Prometheus reads: (name, (label, value), ...) -> value; labels in the order of the alphabet."""
    kind, body = metrics.render()
    assert kind.startswith("text/plain")
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(body.decode())
        for sample in family.samples
        if not sample.name.endswith("_created")
    }


def test_lost_leases_and_outages_are_counted() -> None:
    metrics = PrometheusMetrics()
    metrics.leases_expired("q", 7)
    metrics.leases_lost("q", 3)
    metrics.poisoned("q", 1)
    metrics.acks_refused("q", 2)
    metrics.store_unavailable()
    metrics.started(lambda: Readings(4, 3, 1.0))
    metrics.started(lambda: Readings(4, 4, 2.0))
    shown = samples(metrics)
    assert shown["headrace_leases_expired_total", ("queue", "q")] == 7
    assert shown["headrace_leases_lost_total", ("queue", "q")] == 3
    assert shown["headrace_jobs_poisoned_total", ("queue", "q")] == 1
    assert shown["headrace_acks_refused_total", ("queue", "q")] == 2
    assert shown["headrace_store_unanswered_calls_total",] == 1
    assert (shown["headrace_slots", ("state", "busy")], shown["headrace_slots", ("state", "free")]) == (7, 1)


def test_metrics_that_nobody_could_read_are_refused() -> None:
    with pytest.raises(InvalidSettings, match="metrics is prometheus and health_port is 0"):
        WorkerSettings(metrics="prometheus")


@pytest.mark.parametrize(("kind", "module"), [("prometheus", "prometheus_client"), ("otel", "opentelemetry")])
def test_a_missing_extra_is_named(kind: Any, module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(sys.modules):
        if name.partition(".")[0] == module or name in ("headrace.telemetry.prometheus", "headrace.telemetry.otel"):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(InvalidInput, match=rf"install headrace\[{kind}\]"):
        open_metrics(kind)


async def test_settings_choose_the_metrics() -> None:
    chosen = Worker(App(), MemoryStore(), WorkerSettings(metrics="prometheus", health_port=1))._metrics
    assert isinstance(chosen, PrometheusMetrics)
    assert isinstance(Worker(App(), MemoryStore(), WorkerSettings(metrics="otel"))._metrics, OpenTelemetryMetrics)
    assert type(Worker(App(), MemoryStore(), WorkerSettings())._metrics) is NoMetrics
