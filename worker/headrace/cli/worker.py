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
from headrace.cli.output import Exit, PrefixOption, UrlFileOption, UrlOption, check_shared, chosen, fail, report
from headrace.errors import HeadraceError
from headrace.telemetry.logs import configure_logging
from headrace.worker import Ending, Worker, WorkerSettings

app = typer.Typer(no_args_is_help=True, help="Run workers.")


_DEFAULTS = {"worker_id": "host name", "queues": "default"}


def _option(setting: str, *names: str) -> Any:
    """Return the option of a setting, with what it means and its default; unset, the environment may still set it."""
    field = WorkerSettings.model_fields[setting]
    default = _DEFAULTS.get(setting, field.default)
    shown = "" if default is None else f" [default: {default}]"
    repeatable = " May be repeated." if setting == "queues" else ""
    return typer.Option(*names, help=f"{field.description}{repeatable}{shown}", show_default=False)


@app.command("run")
def run(
    application: Annotated[str, typer.Argument(metavar="APP", help="module:attribute, as in emails.handlers:app.")],
    queues: Annotated[list[str] | None, _option("queues", "--queue", "-q")] = None,
    worker_id: Annotated[str | None, _option("worker_id", "--worker-id")] = None,
    concurrency: Annotated[int | None, _option("concurrency", "--concurrency", "-c")] = None,
    batch_size: Annotated[int | None, _option("batch_size", "--batch-size")] = None,
    queue_buffer: Annotated[int | None, _option("queue_buffer", "--queue-buffer")] = None,
    max_in_flight: Annotated[int | None, _option("max_in_flight", "--max-in-flight")] = None,
    lease_ms: Annotated[int | None, _option("lease_ms", "--lease-ms")] = None,
    heartbeat_ms: Annotated[int | None, _option("heartbeat_ms", "--heartbeat-ms")] = None,
    poll_ms: Annotated[int | None, _option("poll_ms", "--poll-ms")] = None,
    timeout_ms: Annotated[int | None, _option("timeout_ms", "--timeout-ms")] = None,
    grace_seconds: Annotated[float | None, _option("grace_seconds", "--grace-seconds")] = None,
    health_host: Annotated[str | None, _option("health_host", "--health-host")] = None,
    health_port: Annotated[int | None, _option("health_port", "--health-port")] = None,
    metrics: Annotated[str | None, _option("metrics", "--metrics")] = None,
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
    given |= chosen(redis_url, redis_url_file, prefix)
    try:
        settings = WorkerSettings(**given)
        check_shared(settings)
        loaded = load(application)
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            ending = runner.run(_work(loaded, settings))
    except (ValidationError, HeadraceError) as error:
        report(error, given)
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
