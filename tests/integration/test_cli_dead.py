"""``headrace dead`` on a real server."""

from __future__ import annotations

import asyncio
import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from headrace import lifecycle
from headrace.producer import Producer
from headrace.stores import open_store
from headrace.stores.base import Failure
from headrace.topology import PartitionRef
from tests.integration.conftest import Run
from tests.integration.terminal import at_a_terminal

AT = PartitionRef("emails", 1, 0)


@pytest.fixture
def run(run: Run, server_url: str, prefix: str) -> Run:
    asyncio.run(kill_jobs(server_url, prefix))
    return run


async def kill_jobs(url: str, prefix: str) -> None:
    """Three jobs die, of two types and with two errors."""
    store = open_store(url, prefix)
    await lifecycle.promote(store, "emails", 1, 1)
    producer = Producer(store)
    for number, (name, kind, error) in enumerate(
        (("a", "send", "Refused: no\n  smtp.py:7 in send"), ("b", "send", "Refused: no"), ("c", "render", "boom")), 1
    ):
        await producer.enqueue("emails", kind, {"to": name}, id=name)
        claim = await store.claim(AT, "w", number, 1, 60_000)
        assert await store.fail(AT, [Failure(claim.jobs[0].key, claim.token, None, error)]) == []
    await store.close()


def names(run: Run, *arguments: str) -> list[str]:
    listed: list[dict[str, Any]] = json.loads(run("dead", "list", "emails", "-o", "json", *arguments)[1])
    return sorted(each["id"] for each in listed)


def test_J19_dead_letters_are_listed_with_their_reason(run: Run) -> None:
    code, out, _ = run("dead", "list", "emails")
    header, *lines = out.splitlines()
    assert (code, header.split()) == (0, ["NAME", "TYPE", "PARTITION", "RUNS", "ERROR", "AGE"])
    assert sorted(line.split()[0] for line in lines) == ["a", "b", "c"]
    assert "Refused: no" in out
    assert "smtp.py" not in out
    (shown,) = json.loads(run("dead", "list", "emails", "--id", "a", "-o", "json")[1])
    assert (shown["type"], shown["payload"], shown["runs"]) == ("send", {"to": "a"}, 1)
    assert [entry["status"] for entry in shown["history"]] == ["failed"]
    assert names(run, "--type", "send") == ["a", "b"]
    assert names(run, "--error", "boom") == ["c"]
    assert len(names(run, "--limit", "2")) == 2


def test_J19_groups_count_by_type_and_error(run: Run) -> None:
    groups = json.loads(run("dead", "groups", "emails", "-o", "json")[1])
    assert groups == [
        {"type": "send", "error": "Refused: no", "jobs": 2},
        {"type": "render", "error": "boom", "jobs": 1},
    ]


def test_J19_an_action_needs_a_filter_and_consent(run: Run) -> None:
    for verb in ("retry", "delete"):
        code, out, err = run("dead", verb, "emails", "--yes")
        assert (code, out) == (1, "")
        assert "--all" in err
        code, out, err = run("dead", verb, "emails", "--all")
        assert (code, out) == (1, "")
        assert "3 dead letter(s)" in err
        assert "--yes" in err
        assert run("dead", verb, "emails", "--all", "--id", "a", "--yes")[0] == 1
        assert run("dead", verb, "emails", "--type", "send", "--dry-run") == (
            0,
            "2 dead letter(s) of queue emails would be affected\n",
            "",
        )
    assert names(run) == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("answer", "code", "left"),
    [("n\n", 2, ["a", "b", "c"]), ("\x03", 2, ["a", "b", "c"]), ("\x04", 2, ["a", "b", "c"]), ("y\n", 0, [])],
    ids=["no", "Ctrl-C", "Ctrl-D", "yes"],
)
def test_J19_a_person_is_asked_and_may_decline(run: Run, answer: str, code: int, left: list[str]) -> None:
    ended, shown = at_a_terminal(("dead", "delete", "emails", "--all"), "[y/N]:", answer)
    assert (ended, "delete 3 dead letter(s) of queue emails?" in shown) == (code, True), shown
    assert "Traceback" not in shown
    assert names(run) == left


def test_J19_dead_letters_are_put_back(run: Run) -> None:
    assert run("dead", "retry", "emails", "--type", "send", "--yes") == (0, "2 enqueued\n", "")
    assert names(run) == ["c"]
    (version,) = json.loads(run("status", "emails", "-o", "json")[1])["versions"]
    assert (version["ready"], version["dead"]) == (2, 1)


def test_QD5_a_letter_whose_id_is_live_is_kept_and_that_is_said(run: Run) -> None:
    assert run("job", "enqueue", "emails", "send", '{"to": "another"}', "--id", "a")[0] == 0
    code, out, err = run("dead", "retry", "emails", "--type", "send", "--yes")
    assert (code, err) == (0, "")
    assert out.splitlines()[0] == "1 enqueued"
    assert "1 kept: a job with that id is live; retry again when it has ended, or delete the letter" in out
    assert names(run) == ["a", "c"]


def test_an_action_that_matches_nothing_says_so(run: Run) -> None:
    for verb in ("retry", "delete"):
        for consent in ("--yes", "--error="):
            assert run("dead", verb, "emails", "--id", "nosuch", consent) == (0, "no dead letter matches\n", "")


def test_J19_dead_letters_are_deleted(run: Run) -> None:
    assert run("dead", "delete", "emails", "--all", "--yes") == (0, "3 deleted\n", "")
    assert names(run) == []
    (version,) = json.loads(run("status", "emails", "-o", "json")[1])["versions"]
    assert (version["ready"], version["dead"]) == (0, 0)


def test_QD5_dead_letters_are_exported_as_lines(run: Run) -> None:
    code, out, _ = run("dead", "export", "emails", "--type", "send")
    lines = [json.loads(line) for line in out.splitlines()]
    assert (code, sorted(line["id"] for line in lines)) == (0, ["a", "b"])


def test_an_export_ends_at_its_limit(run: Run) -> None:
    code, out, _ = run("dead", "export", "emails", "--limit", "2")
    assert (code, len(out.splitlines())) == (0, 2)


def test_QD5_what_is_exported_comes_back_from_a_file_or_stdin(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = run("dead", "export", "emails")[1]
    file = tmp_path / "dead.jsonl"
    file.write_text(lines)
    before = json.loads(run("dead", "list", "emails", "-o", "json")[1])
    assert run("dead", "delete", "emails", "--all", "--yes")[0] == 0
    code, out, _ = run("dead", "import", "emails", str(file), "--dry-run")
    assert (code, [line.split() for line in out.splitlines()]) == (
        0,
        [["NAME", "MISSING", "EXISTING", "LIVE"], ["emails", "3", "0", "0"]],
    )
    assert names(run) == []
    told = json.loads(run("dead", "import", "emails", str(file), "-o", "json")[1])
    assert told == {"queue": "emails", "changed": True, "added": 3, "existing": 0, "live": 0}
    assert json.loads(run("dead", "list", "emails", "-o", "json")[1]) == before
    assert run("dead", "retry", "emails", "--id", "a", "--yes")[0] == 0
    monkeypatch.setattr(sys, "stdin", io.StringIO(lines + "\n"))
    told = json.loads(run("dead", "import", "emails", "-o", "json")[1])
    assert (told["changed"], told["added"], told["existing"], told["live"]) == (False, 0, 2, 1)
    assert run("dead", "retry", "emails", "--all", "--yes")[:2] == (0, "2 enqueued\n")


@pytest.mark.parametrize(
    ("second", "told"),
    [("{oops", "line 2: is not JSON"), ("{}", "line 2: line: is no dead letter; import lines as")],
)
def test_an_import_with_a_wrong_line_changes_nothing(run: Run, tmp_path: Path, second: str, told: str) -> None:
    file = tmp_path / "dead.jsonl"
    file.write_text(run("dead", "export", "emails", "--limit", "1")[1] + second)
    assert run("dead", "delete", "emails", "--all", "--yes")[0] == 0
    code, out, err = run("dead", "import", "emails", str(file))
    assert (code, out) == (1, "")
    assert told in err
    assert "nothing was imported" in err
    assert names(run) == []
    assert run("dead", "import", "emails", str(tmp_path / "none"))[2].startswith("Error: FILE: ")


def test_an_unknown_queue_is_named(run: Run) -> None:
    code, out, err = run("dead", "list", "nobody")
    assert (code, out) == (1, "")
    assert "'nobody'" in err
