"""What the operator counts of itself, shown to Prometheus."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import accumulate
from typing import Literal, NamedTuple

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from headrace.telemetry.counts import BUCKETS, Histogram
from headrace_operator.api.names import QueueKey
from headrace_operator.queue_gauges import QueueGauges, families

Outcome = Literal["settled", "gone", "failed"]
"""Of a pass: everything is as it can be now; the Queue is gone; an error ended it."""
_BOUNDS = (*(repr(bound) for bound in BUCKETS), "+Inf")
_COLLECTION = re.compile(r"/(?:api/[^/]+|apis/[^/]+/[^/]+)(?:/namespaces/[^/]+)?/([a-z]+)(?:/[^/]+(?:/([a-z]+))?)?$")


class Gauges(NamedTuple):
    """What is read when somebody asks. ``queue_depth``: Queues to look at now, the latest for ``lateness_seconds``."""

    is_leader: bool = False
    queues: int = 0
    queue_depth: int = 0
    lateness_seconds: float = 0.0
    list_age_seconds: float = 0.0


class OperatorMetrics(Collector):
    """Counts in one event loop. ``gauges`` is called for each page that is shown."""

    def __init__(self) -> None:
        self.gauges: Callable[[], Gauges] = Gauges
        self._passes: dict[str, Histogram] = {}
        self._errors = Counter[str]()
        self._steps = Counter[str]()
        self._drift = Counter[str]()
        self._events = Counter[tuple[str, str]]()
        self._leaders = Counter[str]()
        self._calls = Counter[tuple[str, str, str]]()
        self._call_seconds: dict[str, Histogram] = {}
        self._waited = 0.0
        self._queues: dict[QueueKey, QueueGauges] = {}
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)

    def passed(self, outcome: Outcome, seconds: float) -> None:
        """Count a pass over one Queue."""
        self._passes.setdefault(outcome, Histogram()).observe(seconds)

    def failed(self, kind: str) -> None:
        """Count an error that ended a pass, by its kind."""
        self._errors[kind] += 1

    def stepped(self, step: str, *, drift: bool) -> None:
        """Count a step that was done. ``drift``: it puts right what somebody else changed."""
        self._steps[step] += 1
        if drift:
            self._drift[step] += 1

    def told(self, kind: str, *, written: bool) -> None:
        """Count an Event of type ``kind``."""
        self._events[(kind, "written" if written else "refused")] += 1

    def leader_changed(self, backend: str) -> None:
        """Count a change of who leads the workers of a Queue, or of its lock, that was told."""
        self._leaders[backend] += 1

    def called(self, verb: str, path: str, status: int | None, seconds: float) -> None:
        """Count a call to the API server; ``status`` None: no answer."""
        self._calls[(verb, resource_of(path), "none" if status is None else str(status))] += 1
        self._call_seconds.setdefault(verb, Histogram()).observe(seconds)

    def waited(self, seconds: float) -> None:
        """Count time that a call waited because others were sent before."""
        self._waited += seconds

    def show(self, key: QueueKey, gauges: QueueGauges) -> None:
        """Show this of a Queue from now on."""
        self._queues[key] = gauges

    def hide(self, key: QueueKey | None = None) -> None:
        """Show nothing any more of a Queue that is gone, or of any (None): another operator works now."""
        if key is None:
            self._queues.clear()
        else:
            self._queues.pop(key, None)

    def render(self) -> tuple[str, bytes]:
        """Return content type and body of the text format."""
        return CONTENT_TYPE_LATEST, generate_latest(self._registry)

    def describe(self) -> list[Metric]:
        """Return nothing, so that nothing is collected when it is registered."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield every metric, as prometheus_client asks for it."""
        yield _histogram(
            "headrace_operator_reconcile_duration_seconds",
            "Duration of passes over single Queues.",
            "outcome",
            self._passes,
        )
        yield _counter("headrace_operator_reconcile_errors", "Passes that an error ended.", ("kind",), self._errors)
        yield _counter("headrace_operator_steps", "Steps done in Redis or at the API server.", ("step",), self._steps)
        yield _counter("headrace_operator_drift", "Steps that put right what others changed.", ("step",), self._drift)
        yield _counter("headrace_operator_events", "Events about Queues.", ("type", "outcome"), self._events)
        yield _counter(
            "headrace_operator_leader_changes",
            "Changes of who leads the workers of a Queue, or of its lock, that were told.",
            ("backend",),
            self._leaders,
        )
        yield _counter(
            "headrace_operator_api_calls", "Calls to the API server.", ("verb", "resource", "status"), self._calls
        )
        yield _histogram(
            "headrace_operator_api_call_duration_seconds",
            "Duration of calls to the API server.",
            "verb",
            self._call_seconds,
        )
        yield CounterMetricFamily(
            "headrace_operator_api_wait_seconds", "Time that calls waited for the budget.", value=self._waited
        )
        now = self.gauges()
        for name, text, value in (
            ("is_leader", "Whether this operator works, and not another one.", float(now.is_leader)),
            ("queues", "Queues that are looked after.", now.queues),
            ("queue_depth", "Queues that are to be looked at now.", now.queue_depth),
            ("lateness_seconds", "Time by which the most overdue look is late.", now.lateness_seconds),
            ("list_age_seconds", "Time since all Queues were listed.", now.list_age_seconds),
        ):
            yield GaugeMetricFamily(f"headrace_operator_{name}", text, value=value)
        yield from families(dict(self._queues))


def resource_of(path: str) -> str:
    """Return the resource that a path of the API leads to, such as ``queues/status``."""
    found = _COLLECTION.match(path.partition("?")[0])
    if found is None:
        return "other"
    return found[1] if found[2] is None else f"{found[1]}/{found[2]}"


def _counter(name: str, text: str, labels: tuple[str, ...], counts: Counter) -> Metric:  # type: ignore[type-arg]
    family = CounterMetricFamily(name, text, labels=labels)
    for values, count in counts.items():
        family.add_metric(values if isinstance(values, tuple) else (values,), count)
    return family


def _histogram(name: str, text: str, label: str, found: dict[str, Histogram]) -> Metric:
    family = HistogramMetricFamily(name, text, labels=(label,))
    for value, histogram in found.items():
        counts = map(float, accumulate(histogram.buckets))
        family.add_metric((value,), list(zip(_BOUNDS, counts, strict=True)), histogram.total)
    return family
