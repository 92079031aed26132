"""The command line without a store: usage, exit codes, and where messages go."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from headrace.cli.main import app
from headrace.cli.output import Format, age, show

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("HEADRACE_"):
            monkeypatch.delenv(name)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Any:
    def call(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            app(arguments)
        captured = capsys.readouterr()
        return int(ended.value.code or 0), captured.out, captured.err

    return call


def test_version(run: Any) -> None:
    assert run("version") == run("--version") == (0, version("headrace") + "\n", "")


def test_an_unknown_choice_is_told_in_terms_of_the_command_line(run: Any) -> None:
    code, _, err = run("job", "list", "emails", "-o", "xml")
    assert code == 1
    assert "Invalid value for '--output' / '-o': 'xml' is not one of 'table', 'json'" in err


@pytest.mark.parametrize(
    "arguments",
    [
        ("nonsense",),
        ("topology", "nonsense"),
        ("topology", "promote", "emails"),
        ("topology", "promote", "emails", "--version", "one", "--partitions", "1"),
        ("status",),
        ("status", "emails", "-o", "xml"),
        ("worker", "run"),
    ],
)
def test_usage_errors_end_with_1_and_go_to_stderr(run: Any, arguments: tuple[str, ...]) -> None:
    code, out, err = run(*arguments)
    assert (code, out) == (1, "")
    assert "Usage: " in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("worker", "run", "nonsense"), "Error: app: 'nonsense' is not module:attribute"),
        (("worker", "run", "no_such_module:app"), "Error: app: module 'no_such_module' is not found"),
        (("worker", "run", "a:b", "--concurrency", "0"), "Error: --concurrency: 0 is below 1\n"),
        (("worker", "run", "a:b", "-c", "5000"), "Error: --concurrency: 5000 is above 4096\n"),
        (("worker", "run", "a:b", "-q", "NO"), "Error: --queue: 'NO' is not a queue name"),
        (
            ("worker", "run", "a:b", "--metrics", "loud"),
            "Error: --metrics: 'loud' is unknown; give 'none', 'prometheus'",
        ),
        (("status", "emails", "--prefix", "a b"), "Error: --prefix: 'a b' cannot be used; give 1 to 100 characters"),
        (("worker", "run", "a:b", "--log-level", "loud"), "Error: --log-level: 'loud' is unknown"),
        (
            ("worker", "run", "a:b", "--lease-ms", "1000", "--heartbeat-ms", "900"),
            "Error: --heartbeat-ms 900 x 2 is above --lease-ms 1000: one late renewal would lose leases; "
            "set --heartbeat-ms to at most 500",
        ),
        (("status", "emails", "--redis-url", "mongo://x"), "Error: store URL: has the unknown scheme 'mongo'"),
        (("status", "emails", "--redis-url", "redis://a", "--redis-url-file", "b"), "exclude each other; give one"),
        (("status", "emails", "--redis-url", "memory://"), "Error: store URL: memory:// lives within one process"),
        (("worker", "run", "a:b", "--redis-url", "memory://"), "Error: store URL: memory:// lives within one process"),
        (("status", "emails", "--redis-url", "redis://h:123456"), "Error: store URL: has a port that is not a number"),
        (
            ("status", "emails", "--redis-url", "redis://h/five"),
            "Error: store URL: has a database that is not a number",
        ),
        (("job", "enqueue", "emails", "send", ""), "Error: payload: is empty; give JSON, null for none"),
        (("job", "enqueue", "emails", "send", "{not json"), "Error: payload: is not JSON"),
        (("job", "enqueue", "emails", "send", "--run-at", "soon"), "Error: --run-at: 'soon' is not a time"),
        (
            ("status", "emails", "--redis-url-file", "no-such-file"),
            "Error: redis_url_file: no-such-file cannot be read",
        ),
    ],
)
def test_errors_say_what_is_wrong(run: Any, arguments: tuple[str, ...], message: str) -> None:
    code, out, err = run(*arguments)
    assert (code, out) == (1, "")
    assert message in err
    assert "Traceback" not in err


def test_a_store_that_is_not_there_is_an_error_that_names_host_and_port_only(run: Any) -> None:
    code, out, err = run("status", "emails", "--redis-url", "redis://:hunter2@127.0.0.1:1/0")
    assert (code, out) == (1, "")
    told = "does not answer: connection refused; check host and port, and that the server runs"
    assert err == f"Error: redis 127.0.0.1:1/0 {told}\n"


def test_what_comes_from_the_environment_is_named_by_its_variable(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_CONCURRENCY", "many")
    monkeypatch.setenv("HEADRACE_LEASE_MS", "1000")
    assert run("worker", "run", "a:b")[2] == "Error: HEADRACE_CONCURRENCY: 'many' is not a whole number\n"
    monkeypatch.delenv("HEADRACE_CONCURRENCY")
    assert (
        "--heartbeat-ms 900 x 2 is above HEADRACE_LEASE_MS 1000"
        in run("worker", "run", "a:b", "--heartbeat-ms", "900")[2]
    )


def test_help_shows_the_defaults_of_a_worker(run: Any) -> None:
    out = " ".join(run("worker", "run", "--help")[1].split())
    for told in (
        "Handlers that run at the same time. [default: 16]",
        "Lease of a claimed job, milliseconds. [default: 30000]",
        "Time between renewals; unset: a third of the lease.",
        "[default: host name]",
    ):
        assert told in out


def test_a_health_port_in_use_ends_the_worker(run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "greets.py").write_text(
        "from headrace import App\napp = App()\n@app.handler('greet')\ndef greet(ctx, payload): ...\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, _, err = run(
            "worker", "run", "greets:app", "--health-port", str(port), "--redis-url", "redis://127.0.0.1:1"
        )
    assert code == 1
    assert f"Error: health_port: 127.0.0.1 port {port} cannot be listened on (Address already in use)" in err


def test_an_app_without_handlers_is_refused(run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "empty_for_test.py").write_text("from headrace import App\napp = App()\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    code, _, err = run("worker", "run", "empty_for_test:app")
    assert code == 1
    assert "'empty_for_test:app' has no handlers" in err


@pytest.mark.parametrize(
    ("source", "told", "frames"),
    [
        ("def broken(:\n    pass\n", "SyntaxError: invalid syntax (broken_handlers.py, line 1)", 0),
        ("import own_parts\n", "ModuleNotFoundError: No module named 'nowhere'", 2),
        ("1 / 0\n", "ZeroDivisionError: division by zero", 1),
        ("raise SystemExit(0)\n", "SystemExit: 0", 1),
        (
            "from headrace import App\napp = App()\n@app.handler('send')\ndef send(payload): ...\n",
            "InvalidInput: handler: of 'send' cannot be called as function(ctx, payload)",
            1,
        ),
    ],
)
def test_a_module_that_cannot_be_imported_is_told_with_its_own_frames(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, told: str, frames: int
) -> None:
    (tmp_path / "broken_handlers.py").write_text(source)
    (tmp_path / "own_parts.py").write_text("import nowhere\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    code, out, err = run("worker", "run", "broken_handlers:app")
    assert (code, out) == (1, "")
    assert err.startswith(f"Error: app: importing 'broken_handlers' failed: {told}")
    assert err.count("\n  File ") == max(frames, 1)  # a syntax error has a place, though no frame
    assert all(word not in err for word in ("Traceback", "importlib", "typer", f"cli{os.sep}"))
    assert str(tmp_path) in err


def test_the_module_is_the_command() -> None:
    ran = subprocess.run([sys.executable, "-m", "headrace", "version"], capture_output=True, text=True, check=True)
    assert ran.stdout == version("headrace") + "\n"


def test_a_table_holds_nothing_that_moves_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    show(Format.TABLE, {}, ["ERROR", "N"], [["\x1b[2J\x9b1m\u202eno\tmail", 1]])
    _, row = capsys.readouterr().out.splitlines()
    assert row == r"\x1b[2J\x9b1m\u202eno\tmail  1"


def test_tables_are_aligned_and_json_holds_everything(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [("emails:1", "active", 12, None, True), ("emails:10", "draining", 3, 0, False)]
    columns = ("NAME", "STATE", "READY", "OLDEST", "X")
    show(Format.TABLE, {}, columns, rows)
    assert capsys.readouterr().out == (
        "NAME       STATE     READY  OLDEST  X\n"
        "emails:1   active    12     -       yes\n"
        "emails:10  draining  3      0       no\n"
    )
    show(Format.JSON, {"ä": [1]}, columns, rows)
    assert json.loads(capsys.readouterr().out) == {"ä": [1]}


@pytest.mark.parametrize(
    ("ms", "text"),
    [(None, None), (-5, "0ms"), (999, "999ms"), (1000, "1s"), (119_999, "119s"), (120_000, "2m"), (172_800_000, "2d")],
)
def test_ages_for_people(ms: int | None, text: str | None) -> None:
    assert age(ms) == text
