"""``-w`` on a real server, in a process of its own, and what `job retry` says of jobs that are not dead."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import yaml

from tests.integration.conftest import Run


def test_a_status_is_watched_until_ctrl_c(run: Run, server_url: str, prefix: str) -> None:
    run("topology", "promote", "emails", "--version", "1", "--partitions", "1")
    command = [str(Path(sys.executable).parent / "headrace"), "status", "emails", "-w", "-o", "jsonl"]
    with subprocess.Popen(
        [*command, "--redis-url", server_url, "--prefix", prefix],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        guard = threading.Timer(90, process.kill)
        guard.start()
        assert process.stdout is not None
        (version,) = json.loads(process.stdout.readline())["versions"]
        assert version["ready"] == 0
        assert run("job", "enqueue", "emails", "send")[0] == 0
        ends = time.monotonic() + 60
        while version["ready"] != 1 and time.monotonic() < ends:
            (version,) = json.loads(process.stdout.readline())["versions"]
        assert version["ready"] == 1
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
        guard.cancel()
    assert (process.returncode, errors) == (0, "")


def test_every_list_is_shown_as_yaml(run: Run) -> None:
    run("topology", "promote", "emails", "--version", "1", "--partitions", "1")
    for command in (("queue", "list"), ("queue", "describe", "emails"), ("topology", "show", "emails")):
        code, out, _ = run(*command, "-o", "yaml")
        assert code == 0
        assert yaml.safe_load(out) == json.loads(run(*command, "-o", "json")[1])
    code, out, _ = run("acl", "jobs", "-o", "yaml")
    assert (code, yaml.safe_load(out)["user"]) == (0, "jobs")


def test_a_job_that_is_not_dead_is_not_put_back_and_that_is_said(run: Run) -> None:
    run("topology", "promote", "emails", "--version", "1", "--partitions", "1")
    run("job", "enqueue", "emails", "send", "--id", "later", "--delay", "600")
    code, out, err = run("job", "retry", "emails", "later")
    assert (code, out.splitlines()[1].split()) == (1, ["later", "scheduled", "unchanged"])
    assert err == "job later is scheduled and not dead, so there is nothing to put back\n"
