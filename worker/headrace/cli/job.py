"""``headrace job``: single jobs."""

from __future__ import annotations

import json
import sys
from datetime import datetime
from typing import Annotated, Any, Literal

import typer

from headrace.cli.output import (
    Format,
    OutputOption,
    PrefixOption,
    UrlFileOption,
    UrlOption,
    chosen,
    fail,
    show,
    with_store,
)
from headrace.cli.topology import QueueArgument
from headrace.producer import Enqueued, Producer
from headrace.stores import Store

app = typer.Typer(no_args_is_help=True, help="Enqueue jobs.")


@app.command("enqueue")
def enqueue(
    queue: QueueArgument,
    type: Annotated[str, typer.Argument(metavar="TYPE", help="Type of the job: the name of its handler.")],
    payload: Annotated[
        str, typer.Argument(metavar="[PAYLOAD]", help="JSON, or - to read it from stdin.", show_default=False)
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
