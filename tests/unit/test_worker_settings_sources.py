"""Where a worker's settings come from: options, environment, file, defaults; which of them wins, and how it is told."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from headrace import InvalidInput, QueueSettings, RetryPolicy, WorkerSettings
from headrace.cli import worker as command
from headrace.cli.main import app as headrace
from headrace.connection import explain
from headrace.setting_errors import InvalidSettings
from headrace.worker.provenance import DEFAULT, Value, effective, givers, overruled
from headrace.worker.settings_file import misspelled

FILE = """
[worker]
queues = ["emails", "reports"]
concurrency = 3
lease_ms = 4000
poll_ms = 700

[worker.retry]
max_retries = 8
base_ms = 40
"""


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("HEADRACE_") or name == "POD_IP":
            monkeypatch.delenv(name)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "worker.toml"
    path.write_text(FILE)
    return path


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        headrace(("worker", "run", "a:b", *arguments))
    told = capsys.readouterr()
    return int(ended.value.code or 0), told.out, told.err


def test_a_file_is_weaker_than_the_environment_and_that_than_code(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_CONFIG", str(file))
    monkeypatch.setenv("HEADRACE_LEASE_MS", "5000")
    monkeypatch.setenv("HEADRACE_POLL_MS", "800")
    monkeypatch.setenv("HEADRACE_RETRY__MAX_RETRIES", "9")
    settings = WorkerSettings(poll_ms=900)
    assert settings.queues == ("emails", "reports")
    assert (settings.concurrency, settings.lease_ms, settings.poll_ms) == (3, 5000, 900)
    assert settings.retry == RetryPolicy(max_retries=9, base_ms=40)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[worker]\nconcurency = 3\n", "[worker] has no setting 'concurency'; did you mean concurrency?"),
        ("[worker]\nconfig = 'other'\n", "[worker] has no setting 'config'; "),
        ("concurrency = 3\n", "concurrency stands in no table; put it below [worker]"),
        ("[workers]\nconcurrency = 3\n", "table [workers] is unknown; use [worker]"),
        ("[worker\n", "is not TOML ("),
    ],
)
def test_what_a_file_may_not_hold_is_named(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "worker.toml"
    path.write_text(text)
    with pytest.raises(InvalidInput) as refused:
        WorkerSettings(config=path)
    assert refused.value.field == "config"
    assert f"{path}" in str(refused.value)
    assert problem in str(refused.value)


def test_a_file_that_is_not_there_or_no_text_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"missing cannot be read \(No such file or directory\)"):
        WorkerSettings(config=tmp_path / "missing")
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidInput, match=r"binary cannot be read \(is not text\)"):
        WorkerSettings(config=tmp_path / "binary")


def test_values_of_a_file_are_checked_and_named_as_its_own(tmp_path: Path) -> None:
    path = tmp_path / "worker.toml"
    path.write_text("[worker]\nlease_ms = 600\n[worker.retry]\ncap_ms = 5\nbase_ms = 9\n")
    given: dict[str, Any] = {"config": path, "heartbeat_ms": 400}
    with pytest.raises(InvalidSettings) as refused:
        WorkerSettings(**given)
    names = givers(given, {"config": "--config", "heartbeat_ms": "--heartbeat-ms"})
    assert explain(refused.value, names) == [
        "[worker] retry.base_ms 9 is above [worker] retry.cap_ms 5; lower [worker] retry.base_ms or raise "
        "[worker] retry.cap_ms",
    ]
    path.write_text("[worker]\nlease_ms = 600\n")
    with pytest.raises(InvalidSettings) as refused:
        WorkerSettings(**given)
    assert explain(refused.value, names)[0].startswith("--heartbeat-ms 400 x 2 is above [worker] lease_ms 600:")


def test_a_url_wins_over_the_url_file_of_a_weaker_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "worker.toml"
    path.write_text("[worker]\nredis_url_file = '/of/the/file'\n")
    assert WorkerSettings(config=path).redis_url_file == Path("/of/the/file")
    monkeypatch.setenv("HEADRACE_REDIS_URL", "redis://environment")
    assert WorkerSettings(config=path).store_url() == "redis://environment"
    monkeypatch.setenv("HEADRACE_REDIS_URL_FILE", "/of/the/environment")
    # Within one source the file is the stronger one.
    assert WorkerSettings(config=path).redis_url_file == Path("/of/the/environment")
    assert WorkerSettings(config=path, redis_url="redis://code").store_url() == "redis://code"


def test_each_setting_has_an_option_and_each_option_a_setting() -> None:
    leaves = {name for name in WorkerSettings.model_fields if name != "retry"}
    leaves |= {f"retry.{name}" for name in RetryPolicy.model_fields}
    assert set(command._OPTIONS) == leaves
    (group,) = [each for each in get_command(headrace).commands.values() if each.name == "worker"]  # type: ignore[attr-defined]
    options = {name for parameter in group.commands["run"].params for name in parameter.opts}
    assert set(command._OPTIONS.values()) <= options
    others = {"--log-level", "--log-format", "--show-settings", "--output", "--help"}
    assert {name for name in options if name.startswith("--")} - set(command._OPTIONS.values()) <= others


def test_every_value_is_told_with_who_gave_it(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_CONFIG", str(file))
    monkeypatch.setenv("HEADRACE_POLL_MS", "800")
    monkeypatch.setenv("POD_IP", "10.0.0.7")
    given: dict[str, Any] = {"batch_size": 7, "retry": {"max_retries": 2}}
    names = givers(given, {"batch_size": "--batch-size", "retry.max_retries": "--max-retries"})
    told = {each.setting: each for each in effective(WorkerSettings(**given), names)}
    assert [told[name][1:] for name in ("config", "queues", "poll_ms", "batch_size", "lease_ms", "timeout_ms")] == [
        (str(file), "HEADRACE_CONFIG"),
        (["emails", "reports"], "[worker] queues"),
        (800, "HEADRACE_POLL_MS"),
        (7, "--batch-size"),
        (4000, "[worker] lease_ms"),
        (30_000, DEFAULT),
    ]
    assert [told[f"retry.{name}"][1:] for name in ("max_retries", "base_ms", "cap_ms")] == [
        (2, "--max-retries"),
        (40, "[worker] retry.base_ms"),
        (60_000, DEFAULT),
    ]
    # What was left out is told as what it comes to.
    assert told["heartbeat_ms"][1:] == (1333, "lease_ms / 3")
    assert told["max_in_flight"][1:] == (1003, "concurrency + queue_buffer + 1000")
    assert told["health_host"][1:] == ("10.0.0.7", "POD_IP")
    leaves = (WorkerSettings.model_fields.keys() - {"retry"}) | {f"retry.{each}" for each in RetryPolicy.model_fields}
    assert told.keys() == leaves


def test_no_credential_is_told(tmp_path: Path) -> None:
    secret = tmp_path / "url"
    secret.write_text("redis://user:hunter2@redis:6380/3\n")
    both: list[dict[str, Any]] = [{"redis_url": "redis://user:hunter2@redis:6380/3"}, {"redis_url_file": secret}]
    for given in both:
        names = givers(given, {name: f"--{name}" for name in given})
        told = effective(WorkerSettings(**given), names)
        assert Value("redis_url", "redis:6380/3", f"--{next(iter(given))}") in told
        assert "hunter2" not in str(told)


def test_what_a_queue_overrules_is_told() -> None:
    live = QueueSettings(lease_ms=9000, retry=RetryPolicy(max_retries=1))
    told = overruled("emails", live)
    assert Value("lease_ms", 9000, "queue emails") in told
    assert Value("retry.max_retries", 1, "queue emails") in told
    assert {each.setting for each in told} == {"lease_ms", *(f"retry.{name}" for name in RetryPolicy.model_fields)}


def test_a_variable_that_was_probably_misspelled_is_found() -> None:
    known = ["HEADRACE_CONCURRENCY", "HEADRACE_LEASE_MS"]
    environment = {
        "HEADRACE_CONCURENCY": "3",
        "HEADRACE_LEASE_MS": "1",
        "HEADRACE_TEST_MONGO_URL": "x",
        "CONCURENCY": "4",
    }
    assert misspelled(environment, known) == {"HEADRACE_CONCURENCY": "HEADRACE_CONCURRENCY"}


def test_the_command_shows_settings_without_a_store_or_an_application(
    file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_REDIS_URL", "redis://127.0.0.1:1/0")
    arguments = ("--config", str(file), "--max-retries", "1", "--show-settings")
    code, out, err = run(capsys, *arguments, "-o", "json")
    assert code == 0
    told = json.loads(out)
    assert told["settings"]["concurrency"] == {"value": 3, "given_by": "[worker] concurrency"}
    assert told["settings"]["retry.max_retries"] == {"value": 1, "given_by": "--max-retries"}
    assert told["settings"]["redis_url"] == {"value": "127.0.0.1:1/0", "given_by": "HEADRACE_REDIS_URL"}
    assert told["queues"] == {}
    assert "what queue emails overrules is not known: redis 127.0.0.1:1/0 does not answer" in err
    code, out, _ = run(capsys, *arguments)
    assert code == 0
    assert any(line.split() == ["lease_ms", "4000", "[worker]", "lease_ms"] for line in out.splitlines())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--lease-ms", "1000", "--heartbeat-ms", "900"), "--heartbeat-ms 900 x 2 is above --lease-ms 1000:"),
        (("--retry-base-ms", "9", "--retry-cap-ms", "8"), "--retry-base-ms 9 is above --retry-cap-ms 8;"),
        (("--max-retries", "1001"), "--max-retries: 1001 is above 1000"),
        (("--retry-strategy", "none"), "--retry-strategy: 'none' is unknown; give 'exponential'"),
        (("-c", "8", "--max-in-flight", "3"), "--max-in-flight 3 is below --concurrency 8 + HEADRACE_QUEUE_BUFFER 0;"),
        (("--config", "nowhere.toml"), "config: nowhere.toml cannot be read"),
    ],
)
def test_options_are_named_in_refusals(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], message: str
) -> None:
    code, out, err = run(capsys, *arguments)
    assert (code, out) == (1, "")
    assert message in err


def test_a_misspelled_variable_is_told_when_a_worker_starts(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("HEADRACE_CONCURENCY", "4")
    run(capsys)
    assert "HEADRACE_CONCURENCY is set and is no setting; is HEADRACE_CONCURRENCY meant?" in caplog.text
