"""Parked jobs on the command line: they are seen, and a retired type can be given up without losing a job."""

from __future__ import annotations

import asyncio
import json

import pytest

from headrace import lifecycle
from headrace.producer import JobSpec, Producer
from headrace.stores import open_store
from headrace.stores.base import Unknown
from tests.integration.conftest import Run
from tests.integration.terminal import at_a_terminal


@pytest.fixture
def run(run: Run, server_url: str, prefix: str) -> Run:
    asyncio.run(park_jobs(server_url, prefix))
    return run


async def park_jobs(url: str, prefix: str) -> None:
    """Three jobs of a retired type and one of another are parked, over two partitions."""
    store = open_store(url, prefix)
    topology = await lifecycle.promote(store, "emails", 1, 2)
    producer = Producer(store)
    await producer.enqueue_many("emails", [JobSpec("retired", id=f"job-{n}") for n in range(3)])
    await producer.enqueue("emails", "new", id="other")
    for ref in topology.refs(1):
        claim = await store.claim(ref, "w", 1, 10, 60_000)
        kinds = [Unknown(job.key, claim.token, "new" if job.key == b"1other" else "retired") for job in claim.jobs]
        assert await store.park(ref, kinds) == []
    await store.close()


def sizes(run: Run) -> tuple[int, int]:
    (version,) = json.loads(run("status", "emails", "-o", "json")[1])["versions"]
    return version["parked"], version["dead"]


def test_QK1_parked_jobs_are_seen_by_number_and_type(run: Run) -> None:
    header, *lines = run("status", "emails", "-v")[1].splitlines()
    place = header.split().index("PARKED")
    total, *partitions = [int(line.split()[place]) for line in lines]
    assert total == sum(partitions) == 4
    assert run("type", "list", "emails") == (0, "TYPE     PARKED\nretired  3\nnew      1\n", "")
    assert json.loads(run("type", "list", "emails", "-o", "json")[1]) == [
        {"type": "retired", "parked": 3},
        {"type": "new", "parked": 1},
    ]


def test_QK1_QD5_a_retired_type_goes_to_the_dead_letters(run: Run) -> None:
    delete = ("type", "delete", "emails", "--type", "retired")
    assert run(*delete, "--dry-run") == (0, "3 parked job(s) of type retired would become dead letters\n", "")
    code, out, err = run(*delete)
    assert (code, out) == (1, "")
    assert "this would make 3 parked job(s) of type retired dead letters; without a terminal give --yes" in err
    assert sizes(run) == (4, 0)
    assert run(*delete, "--yes") == (0, "3 dead letter(s) more\n", "")
    assert sizes(run) == (1, 3)
    assert run(*delete) == (0, "no job of type retired is parked\n", "")
    assert json.loads(run("dead", "groups", "emails", "-o", "json")[1]) == [
        {"type": "retired", "error": "no worker knows type retired", "jobs": 3}
    ]


@pytest.mark.parametrize(("answer", "code", "left"), [("n\n", 2, (4, 0)), ("y\n", 0, (1, 3))])
def test_a_person_is_asked_before_a_type_is_given_up(run: Run, answer: str, code: int, left: tuple[int, int]) -> None:
    ended, shown = at_a_terminal(("type", "delete", "emails", "--type", "retired"), "[y/N]:", answer)
    assert (ended, sizes(run)) == (code, left), shown


def test_QK1_what_keeps_a_version_is_told_with_its_types(run: Run) -> None:
    assert run("topology", "promote", "emails", "--version", "2", "--partitions", "1")[0] == 0
    code, _, err = run("topology", "complete", "emails", "--version", "1")
    assert code == 8
    assert "parked types: new, retired, see `headrace type list emails`" in err


def test_an_unknown_queue_is_named(run: Run) -> None:
    for arguments in (("list", "nobody"), ("delete", "nobody", "--type", "x", "--yes")):
        code, out, err = run("type", *arguments)
        assert (code, out) == (1, "")
        assert "'nobody'" in err
