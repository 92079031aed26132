"""What somebody reads who makes settings in code that cannot be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pydantic import ValidationError

from headrace import InvalidInput, QueueSettings, Retention, RetryPolicy, WorkerSettings
from headrace.settings import DrainSettings


@pytest.mark.parametrize(
    ("made", "given", "told"),
    [
        (RetryPolicy, {"max_retries": -1}, "RetryPolicy.max_retries: -1 is below 0; give 0 to 1000"),
        (RetryPolicy, {"base_ms": "soon"}, "RetryPolicy.base_ms: 'soon' is not a whole number; give 1 to 86400000"),
        (
            RetryPolicy,
            {"strategy": "random"},
            "RetryPolicy.strategy: 'random' is unknown; give 'exponential', 'linear' or 'backpressure'",
        ),
        (
            RetryPolicy,
            {"base_ms": 9, "cap_ms": 5},
            "RetryPolicy: base_ms 9 is above cap_ms 5; lower base_ms or raise cap_ms",
        ),
        (RetryPolicy, {"retries": 3}, "RetryPolicy.retries: is not a setting; is max_retries meant?"),
        (QueueSettings, {"max_len": 3}, "QueueSettings.max_len: is not a setting; is max_length meant?"),
        (QueueSettings, {"rate_per_second": 0}, "QueueSettings.rate_per_second: 0 is not above 0; give more than 0 to"),
        (QueueSettings, {"max_length": 0}, "QueueSettings.max_length: 0 is below 1; give 1 or more"),
        (QueueSettings, {"retry": {"base_ms": 0}}, "QueueSettings.retry.base_ms: 0 is below 1; give 1 to 86400000"),
        (QueueSettings, {"retry": {"bass_ms": 0}}, "QueueSettings.retry.bass_ms: is not a setting; is base_ms meant?"),
        (Retention, {"done_bytes": 1}, "Retention.done_bytes: 1 is below 1024; give 1024 to 1099511627776"),
        (DrainSettings, {"on_timeout": "migrate"}, "DrainSettings: on_timeout migrate needs timeout_ms; give another"),
        (WorkerSettings, {"concurrency": 0}, "WorkerSettings.concurrency: 0 is below 1; give 1 to 4096"),
        (WorkerSettings, {"concurency": 5}, "WorkerSettings.concurency: is not a setting; is concurrency meant?"),
        (WorkerSettings, {"retry": {"cap_ms": 0}}, "WorkerSettings.retry.cap_ms: 0 is below 1; give 1 to 86400000"),
        (
            WorkerSettings,
            {"lease_ms": 600, "heartbeat_ms": 500},
            "WorkerSettings: heartbeat_ms 500 x 2 is above lease_ms 600: one late renewal would lose leases; set",
        ),
        (WorkerSettings, {"concurrency": 0, "lease_ms": 1}, "give 1 to 4096 (1 more problem(s))"),
    ],
)
def test_field_problem_and_remedy_are_named(made: Callable[..., Any], given: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        made(**given)
    text = str(refused.value)
    assert told in text
    assert "pydantic" not in text
    assert "validation error" not in text
    assert "Input should" not in text
    assert refused.value.__suppress_context__
    assert refused.value.remedy


def test_no_password_is_told() -> None:
    with pytest.raises(InvalidInput) as refused:
        WorkerSettings(redis_url=["redis://:hunter2@redis"])
    assert refused.value.field == "WorkerSettings.redis_url"
    assert "hunter2" not in f"{refused.value!s} {refused.value!r}"


def test_parts_that_are_read_are_checked_as_before() -> None:
    """Stored settings come from other versions: their parts are read with the same leave to ignore what is unknown."""
    stored = {"retry": {"max_retries": 1, "of_a_newer_version": 2}}
    assert QueueSettings.model_validate(stored, extra="ignore").retry == RetryPolicy(max_retries=1)
    with pytest.raises(ValidationError):
        QueueSettings.model_validate(stored)
