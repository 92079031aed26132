"""``headrace worker``: the worker process."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from typing import Annotated, Any, NoReturn

import typer
from pydantic import ValidationError

from headrace.app import App
from headrace.cli.application import load
from headrace.cli.output import Exit, PrefixOption, UrlFileOption, UrlOption, chosen, fail, report
from headrace.errors import HeadraceError
from headrace.telemetry.logs import configure_logging
from headrace.worker import Ending, Worker, WorkerSettings

app = typer.Typer(no_args_is_help=True, help="Run workers.")


@app.command("run")
def run(
    application: Annotated[str, typer.Argument(metavar="APP", help="module:attribute, as in emails.handlers:app.")],
    queues: Annotated[list[str] | None, typer.Option("--queue", "-q", help="Queue to work on; repeatable.")] = None,
    worker_id: Annotated[str | None, typer.Option("--worker-id", help="Name of this worker.")] = None,
    concurrency: Annotated[int | None, typer.Option("--concurrency", "-c", help="Handlers at the same time.")] = None,
    batch_size: Annotated[int | None, typer.Option("--batch-size", help="Jobs per claim at most.")] = None,
    queue_buffer: Annotated[int | None, typer.Option("--queue-buffer", help="Jobs leased beyond free slots.")] = None,
    max_in_flight: Annotated[int | None, typer.Option("--max-in-flight", help="Leased jobs at most.")] = None,
    lease_ms: Annotated[int | None, typer.Option("--lease-ms", help="Lease of a claimed job.")] = None,
    heartbeat_ms: Annotated[int | None, typer.Option("--heartbeat-ms", help="Time between renewals.")] = None,
    poll_ms: Annotated[int | None, typer.Option("--poll-ms", help="Longest wait for a wake-up.")] = None,
    timeout_ms: Annotated[int | None, typer.Option("--timeout-ms", help="Longest run of a job.")] = None,
    grace_seconds: Annotated[
        float | None, typer.Option("--grace-seconds", help="Time for running handlers after SIGTERM.")
    ] = None,
    health_host: Annotated[str | None, typer.Option("--health-host", help="Address of the health server.")] = None,
    health_port: Annotated[
        int | None, typer.Option("--health-port", help="Port of the health server; 0: none.")
    ] = None,
    metrics: Annotated[str | None, typer.Option("--metrics", help="none, prometheus (/metrics) or otel.")] = None,
    log_level: Annotated[str, typer.Option("--log-level", help="debug, info, warning or error.")] = "info",
    log_format: Annotated[str, typer.Option("--log-format", help="text, or json: one object per line.")] = "text",
    redis_url: UrlOption = None,
    redis_url_file: UrlFileOption = None,
    prefix: PrefixOption = None,
) -> None:
    """Run the handlers of an App until SIGTERM or SIGINT; a second signal interrupts running handlers at once.

    Every option may come from the environment instead: HEADRACE_CONCURRENCY and so on, HEADRACE_QUEUES with commas.
    Ends with 0 if every job was finished or handed back, with 1 if a handler did not end or a result was not confirmed.
    """
    if log_level.upper() not in ("DEBUG", "INFO", "WARNING", "ERROR"):
        fail(f"--log-level: {log_level!r} is unknown; give debug, info, warning or error")
    if log_format not in ("text", "json"):
        fail(f"--log-format: {log_format!r} is unknown; give text or json")
    configure_logging(log_format, log_level.upper(), sys.stderr)
    given: dict[str, Any] = {
        "queues": tuple(queues) if queues else None,
        "worker_id": worker_id,
        "concurrency": concurrency,
        "batch_size": batch_size,
        "queue_buffer": queue_buffer,
        "max_in_flight": max_in_flight,
        "lease_ms": lease_ms,
        "heartbeat_ms": heartbeat_ms,
        "poll_ms": poll_ms,
        "timeout_ms": timeout_ms,
        "grace_seconds": grace_seconds,
        "health_host": health_host,
        "health_port": health_port,
        "metrics": metrics,
    }
    given = {name: value for name, value in given.items() if value is not None}
    try:
        settings = WorkerSettings(**given, **chosen(redis_url, redis_url_file, prefix))
        loaded = load(application)
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            ending = runner.run(_work(loaded, settings))
    except (ValidationError, HeadraceError) as error:
        report(error)
    raise typer.Exit(Exit.OK if ending.clean else Exit.ERROR)


async def _work(loaded: App, settings: WorkerSettings) -> Ending:
    store = settings.open_store()
    try:
        ending = await Worker(loaded, store, settings).run(handle_signals=True)
    finally:
        await store.close()
    if ending.abandoned:
        _leave()
    return ending


def _leave() -> NoReturn:
    """End the process without waiting for handlers that do not end: their jobs have been handed back."""
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(Exit.ERROR)


def _loop_factory() -> Any:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop
