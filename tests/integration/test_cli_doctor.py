"""``headrace doctor`` on real servers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest

from headrace import Producer, Store
from headrace.cli.main import app
from headrace.lifecycle import promote
from headrace.pausing import pause_queue
from headrace.stores import open_store
from headrace.stores.base import Beat
from tests.cluster.guard import Guard
from tests.integration.conftest import Run
from tests.services.redis import RedisServer, flavours


@pytest.fixture
def safe_server(process_guard: Guard) -> Iterator[RedisServer]:
    """A server with nothing to say against it."""
    options = ("--appendonly", "yes", "--maxmemory", "100mb", "--maxmemory-policy", "noeviction")
    with RedisServer(flavours()[0], options=options, guard=process_guard) as server:
        yield server


def told(run: Run, *arguments: str, code: int = 0) -> dict[str, Any]:
    ended, out, err = run("doctor", *arguments, "-o", "json")
    assert (ended, err) == (code, "")
    found: dict[str, Any] = json.loads(out)
    return found


def verdicts(found: dict[str, Any], where: str) -> dict[str, str]:
    return {each["check"]: each["verdict"] for each in found["checks"] if each["where"] == where}


async def test_all_is_well_with_a_safe_server_and_a_queue_with_workers(
    run: Run, safe_server: RedisServer, prefix: str
) -> None:
    store = open_store(safe_server.url, prefix)
    try:
        await promote(store, "emails", 1, 2)
        await store.tick("emails", "w-1", Beat("host", 1, slots=4))
        found = await asyncio.to_thread(told, run, "--redis-url", safe_server.url)
    finally:
        await store.close()
    assert found["result"] == "WARN"  # the worker is a name in the registry only, and leads nothing
    assert verdicts(found, "server") == {"scripts": "OK", "clock": "OK"}
    assert verdicts(found, "queue emails") == {
        **dict.fromkeys(("topology", "state", "workers", "waiting", "types", "dead"), "OK"),
        "leader": "WARN",
    }
    of_server = [each for each in found["checks"] if each["where"] not in ("server", "queue emails")]
    assert {each["verdict"] for each in of_server} == {"OK"}
    assert {each["check"] for each in of_server} >= {"connection", "version", "eviction", "persistence", "memory"}


async def test_what_is_wrong_with_queues_is_told_with_its_remedy(run: Run, store: Store) -> None:
    await promote(store, "emails", 1, 1)
    await promote(store, "reports", 1, 1)
    await Producer(store).enqueue("emails", "send")
    await pause_queue(store, "reports")
    found = await asyncio.to_thread(told, run, code=1)  # as the test server saves nothing, too
    assert verdicts(found, "queue emails")["workers"] == "FAIL"
    assert verdicts(found, "queue reports")["state"] == "WARN"
    code, out, _ = await asyncio.to_thread(run, "doctor", "emails", "nobody")
    header, *lines = out.splitlines()
    assert (code, header.split()) == (1, ["CHECK", "WHERE", "RESULT", "FOUND"])
    assert any(line.startswith("topology") and "queue nobody" in line and "FAIL" in line for line in lines)
    assert "- create it by applying a Queue object" in out
    assert "- start some (`headrace worker run APP --queue emails`)" in out
    assert "reports" not in out


def test_a_server_that_does_not_answer_is_a_failed_check(run: Run) -> None:
    code, out, err = run("doctor", "--redis-url", "redis://:hunter2@127.0.0.1:1/0", "-o", "json")
    (check,) = json.loads(out)["checks"]
    assert (code, err, check["check"], check["verdict"]) == (1, "", "connection", "FAIL")
    assert "connection refused" in check["told"]
    assert check["remedy"] == "check host and port, and that the server runs"
    assert "hunter2" not in out


def test_refused_credentials_have_their_own_exit_code(run: Run, server_url: str) -> None:
    url = server_url.replace("redis://", "redis://nobody:hunter2@")
    code, out, _ = run("doctor", "--redis-url", url)
    assert code == 4
    assert "hunter2" not in out


def test_a_user_who_may_not_run_scripts_is_told(safe_server: RedisServer, capsys: pytest.CaptureFixture[str]) -> None:
    with safe_server.client() as client:
        client.execute_command(
            "ACL", "SETUSER", "looker", "on", ">secret", "~*", "&*", "+@all", "-evalsha", "-eval", "-script"
        )
    with pytest.raises(SystemExit) as ended:
        app(["doctor", "--redis-url", safe_server.url.replace("redis://", "redis://looker:secret@"), "-o", "json"])
    checks = {each["check"]: each["verdict"] for each in json.loads(capsys.readouterr().out)["checks"]}
    assert (ended.value.code, checks["connection"], checks["scripts"]) == (4, "OK", "FAIL")
