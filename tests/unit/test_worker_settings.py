"""Settings of a worker: where they come from, what is refused, and that no password is ever shown."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from headrace import InvalidInput, RetryPolicy, WorkerSettings
from headrace.connection import ConnectionSettings, explain
from headrace.setting_errors import InvalidSettings


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("HEADRACE_") or name == "POD_IP":
            monkeypatch.delenv(name)


def refusal(**given: Any) -> str:
    with pytest.raises(InvalidSettings) as refused:
        WorkerSettings(**given)
    return "\n".join(explain(refused.value))


def test_J15_parked_jobs_are_limited_from_code_environment_and_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert WorkerSettings().parked_limits == (None, None)
    (tmp_path / "worker.toml").write_text("[worker]\nparked_jobs = 7\nparked_seconds = 60\n")
    assert WorkerSettings(config=tmp_path / "worker.toml").parked_limits == (7, 60_000)
    monkeypatch.setenv("HEADRACE_PARKED_SECONDS", "0.5")
    assert WorkerSettings(config=tmp_path / "worker.toml", parked_jobs=2).parked_limits == (2, 500)
    assert "PARKED_JOBS: 0 is below 1" in refusal(parked_jobs=0)
    assert "PARKED_SECONDS: " in refusal(parked_seconds=0)


def test_defaults() -> None:
    settings = WorkerSettings()
    assert settings.queues == ("default",)
    assert (settings.concurrency, settings.queue_buffer, settings.lease_ms, settings.timeout_ms) == (
        16,
        0,
        30000,
        30000,
    )
    assert settings.heartbeat_for(30_000) == 10_000
    assert settings.claim_limit == 256
    assert settings.in_flight_limit == 1016
    assert settings.health_address == "127.0.0.1"
    assert settings.store_url() == "redis://127.0.0.1:6379/0"


def test_the_environment_is_read_and_code_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "HEADRACE_QUEUES": "emails, reports,emails",
        "HEADRACE_CONCURRENCY": "32",
        "HEADRACE_WORKER_ID": "pod-7",
        "HEADRACE_GRACE_SECONDS": "1.5",
        "HEADRACE_HEALTH_PORT": "8080",
        "HEADRACE_RETRY__MAX_RETRIES": "7",
        "HEADRACE_RETRY__STRATEGY": "linear",
        "HEADRACE_LEASE_MS": "",
        "POD_IP": "10.0.0.7",
    }.items():
        monkeypatch.setenv(name, value)
    settings = WorkerSettings(concurrency=4)
    assert settings.queues == ("emails", "reports")
    assert settings.concurrency == 4
    assert (settings.worker_id, settings.grace_seconds, settings.health_port) == ("pod-7", 1.5, 8080)
    assert settings.retry == RetryPolicy(max_retries=7, strategy="linear")
    assert settings.lease_ms == 30_000
    assert settings.health_address == "10.0.0.7"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"lease_ms": 1000, "heartbeat_ms": 600},
            "HEADRACE_HEARTBEAT_MS 600 x 2 is above HEADRACE_LEASE_MS 1000: one late renewal would lose leases; "
            "set HEADRACE_HEARTBEAT_MS to at most 500",
        ),
        (
            {"concurrency": 8, "queue_buffer": 4, "max_in_flight": 10},
            "HEADRACE_MAX_IN_FLIGHT 10 is below HEADRACE_CONCURRENCY 8 + HEADRACE_QUEUE_BUFFER 4; "
            "set it to at least 12, or lower these",
        ),
        ({"queues": ""}, "HEADRACE_QUEUES: no queue is given; name at least one"),
        ({"queues": "Not_A_Queue"}, "HEADRACE_QUEUES: 'Not_A_Queue' is not a queue name"),
        ({"worker_id": "two words"}, "HEADRACE_WORKER_ID: is not a worker name"),
        ({"concurrency": 0}, "HEADRACE_CONCURRENCY: 0 is below 1"),
        ({"batch_size": 257}, "HEADRACE_BATCH_SIZE: 257 is above 256"),
        ({"lease_ms": 499}, "HEADRACE_LEASE_MS: 499 is below 500"),
        ({"prefix": "{x}"}, "HEADRACE_PREFIX: '{x}' cannot be used; give 1 to 100 characters"),
        (
            {"retry": {"base_ms": 10, "cap_ms": 5}},
            "HEADRACE_RETRY__BASE_MS 10 is above HEADRACE_RETRY__CAP_MS 5; lower HEADRACE_RETRY__BASE_MS",
        ),
        ({"retry": {"tries": 10}}, "HEADRACE_RETRY__TRIES: is not a setting"),
        ({"concurency": 10}, "HEADRACE_CONCURENCY: is not a setting"),
    ],
)
def test_what_does_not_fit_is_refused_with_the_numbers(given: dict[str, Any], message: str) -> None:
    assert message in refusal(**given)


def test_options_of_the_command_line_are_named_as_they_were_given() -> None:
    with pytest.raises(InvalidSettings) as refused:
        WorkerSettings(metrics="prometheus", health_port=0)
    assert explain(refused.value, {"metrics": "--metrics"}) == [
        "--metrics is prometheus and HEADRACE_HEALTH_PORT is 0: nobody could read them; set HEADRACE_HEALTH_PORT"
    ]


def test_each_problem_is_named() -> None:
    assert len(refusal(concurrency=0, lease_ms=1).splitlines()) == 2


@pytest.mark.parametrize(("heartbeat", "lease", "expected"), [(None, 900, 300), (200, 900, 200), (600, 900, 300)])
def test_a_heartbeat_that_is_too_slow_for_a_queues_lease_is_not_used(
    heartbeat: int | None, lease: int, expected: int
) -> None:
    assert WorkerSettings(heartbeat_ms=heartbeat).heartbeat_for(lease) == expected


def test_the_url_is_read_from_its_file_each_time(tmp_path: Path) -> None:
    file = tmp_path / "url"
    file.write_text("redis://:first@redis:6379/0\n")
    settings = ConnectionSettings(redis_url_file=file)
    assert settings.store_url() == "redis://:first@redis:6379/0"
    file.write_text("redis://:second@redis:6379/0")
    assert settings.store_url() == "redis://:second@redis:6379/0"


def test_a_file_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    with pytest.raises(InvalidInput, match=r"redis_url_file: .*missing cannot be read \(No such file or directory\)"):
        ConnectionSettings(redis_url_file=missing).store_url()
    missing.write_text(" \n")
    with pytest.raises(InvalidInput, match="is empty"):
        ConnectionSettings(redis_url_file=missing).store_url()
    missing.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InvalidInput, match=r"cannot be read \(is not text\)"):
        ConnectionSettings(redis_url_file=missing).store_url()


def test_no_password_is_shown() -> None:
    url = "redis://:hunter2@redis:6379/0"
    settings = WorkerSettings(redis_url=url)
    assert "hunter2" not in repr(settings)
    assert "hunter2" not in settings.model_dump_json()
    with pytest.raises(InvalidSettings) as refused:
        WorkerSettings(redis_url=url, concurrency=0)
    assert "hunter2" not in str(refused.value)
    with pytest.raises(InvalidSettings) as refused:
        WorkerSettings(redis_url=["redis://:hunter2@redis"])
    assert "hunter2" not in str(refused.value) + "\n".join(explain(refused.value))


def test_there_is_no_setting_for_versions_or_partitions() -> None:
    named = [name for name in WorkerSettings.model_fields if "version" in name or "partition" in name]
    assert named == []
