"""What the operator tells of itself."""

from __future__ import annotations

from typing import Any, cast

import pytest
from prometheus_client.parser import text_string_to_metric_families

from headrace_operator.kubernetes.client import ApiError, ApiUnavailable, Body, Kube
from headrace_operator.kubernetes.events import QUIET_SECONDS, Recorder
from headrace_operator.metrics import Gauges, OperatorMetrics, resource_of
from headrace_operator.reasons import Reason, warning
from tests.unit.operator.api_in_memory import ApiInMemory
from tests.unit.operator.scene import queue
from tests.unit.operator.test_convergence import World


def values(metrics: OperatorMetrics) -> dict[str, float]:
    """Samples by name and labels."""
    kind, body = metrics.render()
    assert kind.startswith("text/plain")
    found = {}
    for family in text_string_to_metric_families(body.decode()):
        assert family.name.startswith("headrace_operator_")
        for sample in family.samples:
            labels = ",".join(f"{key}={value}" for key, value in sorted(sample.labels.items()) if key != "le")
            found[f"{sample.name}{{{labels}}}"] = sample.value
    return found


@pytest.mark.parametrize(
    ("path", "resource"),
    [
        ("/api/v1/namespaces/kube-system", "namespaces"),
        ("/api/v1/namespaces/ns/secrets/a?x=y", "secrets"),
        ("/apis/headrace.dev/v1alpha1/queues?limit=500", "queues"),
        ("/apis/headrace.dev/v1alpha1/namespaces/ns/queues/mail/status", "queues/status"),
        ("/apis/apps/v1/namespaces/ns/deployments/mail-workers/scale?fieldManager=x", "deployments/scale"),
        ("/apis/headrace.dev/v1alpha1", "other"),
    ],
)
def test_calls_are_counted_by_resource_and_never_by_name(path: str, resource: str) -> None:
    assert resource_of(path) == resource


def test_counts_and_gauges_are_shown_in_the_text_format() -> None:
    metrics = OperatorMetrics()
    metrics.gauges = lambda: Gauges(True, 3, 1, 0.5, 12.0)
    metrics.passed("settled", 0.02)
    metrics.failed("ApiUnavailable")
    metrics.stepped("Promote", drift=False)
    metrics.stepped("ApplyObject", drift=True)
    metrics.called("PATCH", "/apis/apps/v1/namespaces/ns/deployments/mail-workers/scale", 200, 0.01)
    metrics.called("GET", "/api/v1/namespaces/ns/secrets/a", None, 5.0)
    metrics.waited(1.5)
    metrics.told("Warning", written=False)
    shown = values(metrics)
    prefix = "headrace_operator_"
    assert shown[f"{prefix}reconcile_duration_seconds_count{{outcome=settled}}"] == 1
    assert shown[f"{prefix}reconcile_errors_total{{kind=ApiUnavailable}}"] == 1
    assert shown[f"{prefix}steps_total{{step=Promote}}"] == 1
    assert f"{prefix}drift_total{{step=Promote}}" not in shown
    assert shown[f"{prefix}drift_total{{step=ApplyObject}}"] == 1
    assert shown[f"{prefix}api_calls_total{{resource=deployments/scale,status=200,verb=PATCH}}"] == 1
    assert shown[f"{prefix}api_calls_total{{resource=secrets,status=none,verb=GET}}"] == 1
    assert shown[f"{prefix}api_wait_seconds_total{{}}"] == 1.5
    assert shown[f"{prefix}events_total{{outcome=refused,type=Warning}}"] == 1
    assert (shown[f"{prefix}is_leader{{}}"], shown[f"{prefix}queues{{}}"]) == (1, 3)
    assert (shown[f"{prefix}queue_depth{{}}"], shown[f"{prefix}lateness_seconds{{}}"]) == (1, 0.5)


async def test_a_topology_that_somebody_removed_counts_as_drift_and_a_loss_does_not() -> None:
    world = World()
    await world.create()
    await world.rest()
    world.lose_topology()
    await world.life()
    assert values(world.metrics)["headrace_operator_drift_total{step=RestoreTopology}"] == 1
    await world.rest()
    world.lose_everything()
    await world.rest()
    shown = values(world.metrics)
    assert shown["headrace_operator_steps_total{step=RestoreTopology}"] == 2
    assert shown["headrace_operator_drift_total{step=RestoreTopology}"] == 1


class Refusing(ApiInMemory):
    """Raises ``error`` for every write."""

    error: Exception | None = None

    async def create(self, *args: Any, **kwargs: Any) -> Body:
        if self.error is not None:
            raise self.error
        return await super().create(*args, **kwargs)


async def test_an_event_counts_as_told_once_it_is_written_or_refused_for_good() -> None:
    now, api, metrics = 0.0, Refusing(), OperatorMetrics()
    recorder = Recorder(cast(Kube, api), lambda: now, metrics)
    event = warning(Reason.UNREACHABLE, "redis does not answer")

    async def tell() -> int:
        recorder.tell(queue(), event)
        await recorder.flush()
        return len(api.objects)

    api.error = ApiUnavailable("no answer")
    assert await tell() == 0
    api.error = None
    assert await tell() == 1
    (stored,) = api.objects.values()
    assert (stored["reason"], stored["count"]) == ("Unreachable", 1)
    assert await tell() == 1
    assert stored["count"] == 1
    now += QUIET_SECONDS
    await tell()
    (stored,) = api.objects.values()
    assert stored["count"] == 2
    # Another process does not know the count, and leaves it.
    another = Recorder(cast(Kube, api), lambda: now)
    another.tell(queue(), event)
    await another.flush()
    (stored,) = api.objects.values()
    assert stored["count"] == 2

    other = warning(Reason.RETAINED, "the namespace is being deleted")
    api.error = ApiError("POST", "/events", 403, "the namespace is being terminated")
    recorder.tell(queue(), other)
    await recorder.flush()
    api.error = AssertionError("it is not tried again")
    recorder.tell(queue(), other)
    await recorder.flush()
    assert values(metrics)["headrace_operator_events_total{outcome=refused,type=Warning}"] == 2
