"""``headrace queue apply`` on a real server."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest

from tests.integration.conftest import Run

FILE = """\
apiVersion: headrace.dev/v1alpha1
kind: Queue
metadata: {name: emails}
spec:
  version: 1
  partitions: 2
  timeoutSeconds: 60
  retention: {doneSeconds: 600}
  workers: {image: "registry.example/emails:1"}
---
apiVersion: headrace.dev/v1alpha1
kind: Queue
metadata: {name: reports}
spec: {version: 1, partitions: 1}
"""


def test_queues_are_what_a_file_says_and_the_same_again_is_unchanged(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "queues.yaml"
    file.write_text(FILE)
    given = ("queue", "apply", "-f", str(file))
    code, out, err = run(*given, "--dry-run")
    assert (code, [line.split()[:4] for line in out.splitlines()[1:]]) == (
        0,
        [["emails", "created", "(dry", "run)"], ["reports", "created", "(dry", "run)"]],
    )
    assert err == "queue emails: workers say nothing without an operator, and are left aside\n"
    assert run("queue", "list", "-o", "json")[1] == "[]\n"
    assert run(*given)[0] == 0
    described = json.loads(run("queue", "describe", "emails", "-o", "json")[1])
    assert (described["partitions"], described["settings"]["timeout_ms"]) == (2, 60_000)
    assert described["settings"]["retention"]["done_seconds"] == 600
    code, out, _ = run(*given, "--error-unchanged", "-o", "json")
    assert (code, [each["changed"] for each in json.loads(out)]) == (3, [False, False])
    file.write_text(
        FILE.replace("timeoutSeconds: 60", "timeoutSeconds: 90").replace("partitions: 1}", "partitions: 3}")
    )
    code, out, err = run(*given)
    assert (code, out) == (1, "")
    assert "version 1 is already active with 1 partitions, not 3" in err
    assert json.loads(run("queue", "describe", "emails", "-o", "json")[1])["settings"]["timeout_ms"] == 60_000
    file.write_text(FILE.replace("timeoutSeconds: 60", "timeoutSeconds: 90").replace("{version: 1", "{version: 2"))
    (emails, reports) = json.loads(run(*given, "-o", "json")[1])
    assert emails["settings"] == {"timeout_ms": {"before": 60_000, "after": 90_000}}
    assert (emails["promoted"], reports["promoted"]) == (False, True)
    assert json.loads(run("topology", "show", "reports", "-o", "json")[1])["active"] == 2


def test_a_file_comes_from_stdin_and_a_wrong_one_is_told(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(FILE.replace("timeoutSeconds", "timeoutSecond")))
    code, out, err = run("queue", "apply", "-f", "-")
    assert (code, out) == (1, "")
    assert err == ("Error: queue 'emails': spec.timeoutSecond: is no field of a Queue; is timeoutSeconds meant?\n")
    assert run("queue", "apply", "-f", "no-such-file")[2].startswith("Error: --file: no-such-file cannot be read")
