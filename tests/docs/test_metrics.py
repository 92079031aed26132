"""Metrics that the pages name are shown by a worker or by the operator."""

from __future__ import annotations

import re

import pytest

from headrace.telemetry.prometheus import PrometheusMetrics
from headrace.worker.metrics import Readings
from headrace_operator.metrics import OperatorMetrics
from tests.docs.blocks import ROOT

SERIES = re.compile(r"(?:seriesQuery: |`)(headrace_[a-z_]+)")
PACKAGES = {"headrace_operator", "headrace_operator_"}
"""Written like a metric, and a package or the beginning of one."""


def shown() -> set[str]:
    metrics = PrometheusMetrics()
    metrics.started(lambda: Readings(slots=2, busy=1, cycle_age=0.0, clock_ahead=0.1, memory_ratio=0.5))
    families = [*metrics.collect(), *OperatorMetrics().collect()]
    return {family.name + ("_total" if family.type == "counter" else "") for family in families}


@pytest.mark.parametrize("page", ["scaling.md", "worker.md", "queue.md", "operating.md"])
def test_metrics_that_a_page_names_are_shown(page: str) -> None:
    named = set(SERIES.findall((ROOT / "docs" / page).read_text())) - PACKAGES
    assert named - shown() == set()


def test_metrics_that_an_alert_reads_are_shown() -> None:
    rules = (ROOT / "charts/headrace/files/alerts.yaml").read_text()
    named = set(re.findall(r"headrace_[a-z_]+(?=[{\[ )])", rules)) - PACKAGES
    assert len(named) > 10
    assert {name.removesuffix("_bucket") for name in named} - shown() == set()


def test_an_autoscaler_asks_for_what_the_adapter_is_told_to_make() -> None:
    text = (ROOT / "docs" / "scaling.md").read_text()
    made = set(re.findall(r"name: \{as: (headrace_[a-z_]+)\}", text))
    asked = set(re.findall(r"metric: \{name: (headrace_[a-z_]+)", text))
    assert asked == made == {"headrace_queue_wait_seconds", "headrace_queue_jobs", "headrace_slots_busy"}
