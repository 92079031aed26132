"""``headrace job``: single jobs."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from contextlib import aclosing
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any, Final, Literal

import typer

from headrace.cli.command_line import noun
from headrace.cli.output import (
    Format,
    OutputOption,
    PrefixOption,
    UrlFileOption,
    UrlOption,
    age,
    chosen,
    fail,
    show,
    with_store,
)
from headrace.cli.topology import QueueArgument
from headrace.dead_letters import server_now
from headrace.envelope import decode_result
from headrace.errors import ResultNotKept
from headrace.finished import Finished, finished_jobs
from headrace.ids import decode_id
from headrace.inquiry import Inquiry, JobDescription
from headrace.job import HistoryEntry
from headrace.live_jobs import LiveJob, live_jobs
from headrace.producer import Enqueued, Producer
from headrace.stores import Store
from headrace.stores.base import Beat, LiveState

app = noun("Enqueue jobs, see what became of them, end them.")


class Listed(StrEnum):
    """What can be listed."""

    SCHEDULED = "scheduled"
    READY = "ready"
    LEASED = "leased"
    RETRY_WAIT = "retry_wait"
    PARKED = "parked"
    SUCCEEDED = "succeeded"


_LIVE: Final[dict[Listed, LiveState]] = {
    Listed.SCHEDULED: "scheduled",
    Listed.READY: "ready",
    Listed.LEASED: "leased",
    Listed.RETRY_WAIT: "retry",
    Listed.PARKED: "parked",
}


def _listed(text: str) -> Listed:
    if text == "dead":
        raise typer.BadParameter("dead letters have a list of their own: `headrace dead list QUEUE`")
    if text not in list(Listed):
        raise typer.BadParameter(f"{text!r} is not one of {', '.join(Listed)}")
    return Listed(text)


@app.command("enqueue")
def enqueue(
    queue: QueueArgument,
    type: Annotated[str, typer.Argument(metavar="TYPE", help="Type of the job: the name of its handler.")],
    payload: Annotated[
        str, typer.Argument(metavar="PAYLOAD", help="JSON, or - to read it from stdin.", show_default=False)
    ] = "null",
    id: Annotated[str | None, typer.Option("--id", help="Id, unique while the job lives.")] = None,
    delay: Annotated[float | None, typer.Option("--delay", help="Seconds from now.")] = None,
    run_at: Annotated[str | None, typer.Option("--run-at", help="Time, ISO 8601 with time zone.")] = None,
    max_retries: Annotated[int | None, typer.Option("--max-retries", help="Repetitions after the first run.")] = None,
    timeout: Annotated[float | None, typer.Option("--timeout", help="Longest run, seconds.")] = None,
    priority: Annotated[
        Literal["high", "default", "low"], typer.Option("--priority", help="Which jobs of a partition run first.")
    ] = "default",
    output: OutputOption = Format.TABLE,
    redis_url: UrlOption = None,
    redis_url_file: UrlFileOption = None,
    prefix: PrefixOption = None,
) -> None:
    """Put one job into a queue and say where it is."""
    value = _json(sys.stdin.read() if payload == "-" else payload)
    due = _time(run_at) if run_at is not None else None

    async def act(store: Store) -> Enqueued:
        return await Producer(store).enqueue(
            queue,
            type,
            value,
            id=id,
            delay=delay,
            run_at=due,
            max_retries=max_retries,
            timeout=timeout,
            priority=priority,
        )

    placed = with_store(chosen(redis_url, redis_url_file, prefix), act)
    columns = ("NAME", "QUEUE", "VERSION", "PARTITION", "EXISTING")
    row = (placed.id, queue, placed.version, placed.partition, placed.existing)
    show(output, {"queue": queue, **placed._asdict()}, columns, [row])


@app.command("list")
def list_jobs(
    queue: QueueArgument,
    state: Annotated[
        Listed,
        typer.Option(
            "--state",
            parser=_listed,
            metavar=f"[{'|'.join(Listed)}]",
            help="succeeded: while the queue keeps them; the others live.",
        ),
    ] = Listed.SUCCEEDED,
    type: Annotated[str | None, typer.Option("--type", help="Only jobs of this type.")] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="Jobs at most.")] = 100,
    oldest_first: Annotated[bool, typer.Option("--oldest-first", help="Begin with the oldest.")] = False,
    output: OutputOption = Format.TABLE,
    redis_url: UrlOption = None,
    redis_url_file: UrlFileOption = None,
    prefix: PrefixOption = None,
) -> None:
    """List jobs: finished ones, newest first, or those of a state, in each partition those first that are to run first.

    Dead ones: `headrace dead list`. RUNS: failed ones and the last. UNTIL: they wait, or are leased.
    """
    given = chosen(redis_url, redis_url_file, prefix)
    if (live := _LIVE.get(state)) is not None:
        if oldest_first:
            fail("--oldest-first is for finished jobs; leave it out")
        _list_live(given, queue, live, type, limit, output)
        return

    async def act(store: Store) -> tuple[int, list[Finished]]:
        topology = await Inquiry(store, queue).topology()
        if not topology.settings.keeps_finished:
            fail(
                f"queue {queue!r} keeps no finished jobs, so there are none to list; set spec.retention of its Queue "
                "(or QueueSettings.retention), `{}` for the defaults; live jobs: give --state "
                f"{', '.join(_LIVE)}"
            )
        found: list[Finished] = []
        async with aclosing(finished_jobs(store, queue, newest_first=not oldest_first)) as jobs:
            async for each in jobs:
                if type is None or each.job.type == type:
                    found.append(each)
                if len(found) == limit:
                    break
        return await server_now(store, queue), found

    now, found = with_store(given, act)
    data = [
        {
            "id": decode_id(each.job.stored_id),
            "queue": queue,
            "version": each.ref.version,
            "partition": each.ref.partition,
            "state": "succeeded",
            "type": each.job.type,
            "attempt": each.job.attempt,
            "worker": each.job.worker,
            "finished_at": _iso(each.job.finished_at),
            **_result(each.job.result),
        }
        for each in found
    ]
    rows = [
        (row["id"], row["type"], each.ref.label, each.job.attempt + 1, each.job.worker, age(now - each.job.finished_at))
        for row, each in zip(data, found, strict=True)
    ]
    show(output, data, ("NAME", "TYPE", "PARTITION", "RUNS", "WORKER", "AGE"), rows)


def _list_live(
    given: dict[str, Any], queue: str, state: LiveState, type: str | None, limit: int, output: Format
) -> None:
    async def act(store: Store) -> tuple[int, list[LiveJob]]:
        found: list[LiveJob] = []
        async with aclosing(live_jobs(store, queue, state)) as jobs:
            async for each in jobs:
                if type is None or (each.job is not None and each.job.type == type):
                    found.append(each)
                if len(found) == limit:
                    break
        return await server_now(store, queue), found

    now, found = with_store(given, act)
    data = [
        {
            "id": decode_id(each.entry.stored_id),
            "queue": queue,
            "version": each.ref.version,
            "partition": each.ref.partition,
            "state": "retry_wait" if state == "retry" else state,
            "type": each.job.type if each.job else None,
            "attempt": each.job.attempt if each.job else None,
            "at": None if each.entry.at is None else _iso(each.entry.at),
            "worker": each.entry.worker or None,
            "created_at": _iso(each.job.created_at) if each.job else None,
            "error": each.job.last_error if each.job else "the stored record cannot be read",
        }
        for each in found
    ]
    rows = [
        (
            *(row["id"], row["type"], each.ref.label, row["attempt"]),
            None if each.entry.at is None else age(each.entry.at - now),
            *(row["worker"], age(now - each.job.created_at) if each.job else None),
        )
        for row, each in zip(data, found, strict=True)
    ]
    show(output, data, ("NAME", "TYPE", "PARTITION", "RUNS", "UNTIL", "WORKER", "AGE"), rows)


@app.command("describe")
def describe(
    queue: QueueArgument,
    id: Annotated[str, typer.Argument(metavar="ID", help="Id of the job.")],
    output: OutputOption = Format.TABLE,
    redis_url: UrlOption = None,
    redis_url_file: UrlFileOption = None,
    prefix: PrefixOption = None,
) -> None:
    """Show where a job is, its attempts and its history; of one that has ended, what is kept of it."""

    async def act(store: Store) -> tuple[int, JobDescription, dict[str, Beat]]:
        found = await Inquiry(store, queue).describe(id)
        history = found.job.history if found.job else ()
        workers = {entry.worker for entry in history if entry.status == "lease expired"}
        lost = {each.worker: each.beat for each in await store.about_workers(queue, sorted(workers))}
        return await server_now(store, queue), found, lost

    now, (status, job), lost = with_store(chosen(redis_url, redis_url_file, prefix), act)
    if status.state == "unknown":
        fail(
            f"queue {queue!r}: job {id} is unknown: it never was there, or nothing is kept of it any more; finished "
            "jobs are kept as the queue's retention says"
        )
    data: dict[str, Any] = {
        "id": id,
        "queue": queue,
        "version": status.version,
        "partition": status.partition,
        "state": status.state,
        "at": None if status.at is None else _iso(status.at),
        "worker": status.worker,
        "type": job.type if job else status.type,
        "attempt": job.attempt if job else status.attempt,
        "error": job.last_error if job else status.error,
        **_result(status.packed_result),
    }
    if job is not None:
        payload = job.payload
        data |= {
            "created_at": _iso(job.created_at),
            "run_at": _iso(job.run_at),
            "expiries": job.expiries,
            "crashes": job.crashes,
            "priority": job.priority,
            "payload": payload.hex() if isinstance(payload, bytes) else payload,
            "payload_is_hex": isinstance(payload, bytes),
            "headers": job.headers,
            "retry": None if job.retry is None else job.retry.model_dump(),
            "progress": None if job.progress is None else job.progress._asdict() | {"at": _iso(job.progress.at)},
            "history": [
                entry._asdict() | {"at": _iso(entry.at), "place": _place(entry, lost)} for entry in job.history
            ],
        }
    rows: list[tuple[object, ...]] = [
        (name.upper(), _line(value))
        for name, value in data.items()
        if name not in ("history", "progress")
        and value not in (None, "", {})
        and not (name.endswith("_is_hex") and not value)
    ]
    if job is not None and job.progress is not None:
        value, note, at = job.progress
        rows.append(("PROGRESS", " ".join(filter(None, (f"{value:g}", _line(note), f"({age(now - at)} ago)")))))
    for entry in job.history if job else ():
        error = entry.error.partition("\n")[0][:60]
        where = f"({place})" if (place := _place(entry, lost)) else ""
        told = filter(None, (entry.status, f"on {entry.worker}", where, error))
        rows.append((f"{age(now - entry.at)} ago", " ".join(told)))
    show(output, data, ("FIELD", "VALUE"), rows)


def _place(entry: HistoryEntry, lost: Mapping[str, Beat]) -> str:
    """Return where a worker ran that has lost the job, as long as the registry knows: for an hour."""
    return lost[entry.worker].place if entry.status == "lease expired" and entry.worker in lost else ""


def _line(value: object) -> str:
    if isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False)
    return str(value).partition("\n")[0]


def _result(packed: bytes) -> dict[str, Any]:
    """Return a result as JSON can hold it, or why there is none."""
    try:
        value = decode_result(packed)
    except (ResultNotKept, ValueError) as error:
        return {"result": None, "result_is_hex": False, "result_problem": str(error)}
    hexed = isinstance(value, bytes)
    return {"result": value.hex() if hexed else value, "result_is_hex": hexed, "result_problem": None}


def _iso(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds")


def _json(text: str) -> Any:
    if not text.strip():
        fail("payload: is empty; give JSON, null for none")
    try:
        return json.loads(text)
    except ValueError as error:
        fail(f"payload: is not JSON ({error}); quote texts twice, for example '\"hello\"'")


def _time(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        fail(f"--run-at: {text!r} is not a time; give for example 2030-01-31T12:00:00Z")
