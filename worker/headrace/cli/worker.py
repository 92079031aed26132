"""``headrace worker``: the worker process."""

from __future__ import annotations

import logging
import os
import sys
from typing import Annotated, Any, NoReturn

import typer

from headrace.app import App
from headrace.cli.application import load
from headrace.cli.command_line import noun
from headrace.cli.event_loop import run_to_its_end
from headrace.cli.output import (
    Exit,
    Format,
    OutputOption,
    PrefixOption,
    UrlFileOption,
    UrlOption,
    check_shared,
    chosen,
    fail,
    report,
)
from headrace.cli.worker_settings import show_values
from headrace.connection import variable as variable_of
from headrace.errors import HeadraceError
from headrace.retry import RetryPolicy
from headrace.telemetry.logs import configure_logging
from headrace.worker import Ending, Worker, WorkerSettings
from headrace.worker.provenance import givers
from headrace.worker.settings_file import misspelled

log = logging.getLogger("headrace.worker")

app = noun("Run workers, and look after them.")


_DEFAULTS = {"worker_id": "host name", "queues": "default"}
_OPTIONS = {
    "queues": "--queue",
    "retry.max_retries": "--max-retries",
    **{name: f"--{name.replace('_', '-')}" for name in WorkerSettings.model_fields if name not in ("queues", "retry")},
    **{f"retry.{name}": f"--retry-{name.removesuffix('_ms')}-ms" for name in ("base_ms", "cap_ms")},
    "retry.strategy": "--retry-strategy",
}
"""How settings are called on the command line."""


def _option(setting: str, short: str | None = None) -> Any:
    """Return the option of a setting, with what it means and its default; unset, others may still set it."""
    part, _, inner = setting.partition(".")
    field = RetryPolicy.model_fields[inner] if inner else WorkerSettings.model_fields[part]
    default = _DEFAULTS.get(setting, field.default)
    shown = "" if default is None else f" [default: {default}]"
    repeatable = " May be repeated." if setting == "queues" else ""
    names = (_OPTIONS[setting], short) if short else (_OPTIONS[setting],)
    return typer.Option(*names, help=f"{field.description}{repeatable}{shown}", show_default=False)


@app.command("run")
def run(
    application: Annotated[str, typer.Argument(metavar="APP", help="module:attribute, as in emails.handlers:app.")],
    queues: Annotated[list[str] | None, _option("queues", "-q")] = None,
    worker_id: Annotated[str | None, _option("worker_id")] = None,
    concurrency: Annotated[int | None, _option("concurrency", "-c")] = None,
    batch_size: Annotated[int | None, _option("batch_size")] = None,
    queue_buffer: Annotated[int | None, _option("queue_buffer")] = None,
    max_in_flight: Annotated[int | None, _option("max_in_flight")] = None,
    lease_ms: Annotated[int | None, _option("lease_ms")] = None,
    heartbeat_ms: Annotated[int | None, _option("heartbeat_ms")] = None,
    poll_ms: Annotated[int | None, _option("poll_ms")] = None,
    timeout_ms: Annotated[int | None, _option("timeout_ms")] = None,
    timeout_grace_ms: Annotated[int | None, _option("timeout_grace_ms")] = None,
    max_retries: Annotated[int | None, _option("retry.max_retries")] = None,
    retry_strategy: Annotated[str | None, _option("retry.strategy")] = None,
    retry_base_ms: Annotated[int | None, _option("retry.base_ms")] = None,
    retry_cap_ms: Annotated[int | None, _option("retry.cap_ms")] = None,
    grace_seconds: Annotated[float | None, _option("grace_seconds")] = None,
    parked_jobs: Annotated[int | None, _option("parked_jobs")] = None,
    parked_seconds: Annotated[float | None, _option("parked_seconds")] = None,
    health_host: Annotated[str | None, _option("health_host")] = None,
    health_port: Annotated[int | None, _option("health_port")] = None,
    memory_limit: Annotated[float | None, _option("memory_limit")] = None,
    metrics: Annotated[str | None, _option("metrics")] = None,
    leader_backends: Annotated[str | None, _option("leader_backends")] = None,
    leader_lease_name: Annotated[str | None, _option("leader_lease_name")] = None,
    leader_lease_namespace: Annotated[str | None, _option("leader_lease_namespace")] = None,
    leader_mongo_url_file: Annotated[str | None, _option("leader_mongo_url_file")] = None,
    leader_profile: Annotated[str | None, _option("leader_profile")] = None,
    leader_lease_duration: Annotated[int | None, _option("leader_lease_duration")] = None,
    leader_renew_deadline: Annotated[float | None, _option("leader_renew_deadline")] = None,
    leader_retry_period: Annotated[float | None, _option("leader_retry_period")] = None,
    leader_call_timeout: Annotated[float | None, _option("leader_call_timeout")] = None,
    leader_on_wedged: Annotated[str | None, _option("leader_on_wedged")] = None,
    config: Annotated[str | None, _option("config")] = None,
    log_level: Annotated[str, typer.Option("--log-level", help="debug, info, warning or error.")] = "info",
    log_format: Annotated[str, typer.Option("--log-format", help="text, or json: one object per line.")] = "text",
    redis_url: UrlOption = None,
    redis_url_file: UrlFileOption = None,
    prefix: PrefixOption = None,
    show_settings: Annotated[
        bool, typer.Option("--show-settings", help="Show every setting and who gave it, and end.")
    ] = False,
    output: OutputOption = Format.TABLE,
) -> None:
    """Run the handlers of an App until SIGTERM or SIGINT; a second signal interrupts running handlers at once.

    Every option may come from the environment instead, HEADRACE_CONCURRENCY and so on (HEADRACE_QUEUES with commas,
    HEADRACE_RETRY__MAX_RETRIES), or from a TOML file with a table [worker]; options win over the environment, that over
    the file. Ends with 0 if every job was finished or handed back, with 1 if a handler did not end or a result was not
    confirmed.
    """
    if log_level.upper() not in ("DEBUG", "INFO", "WARNING", "ERROR"):
        fail(f"--log-level: {log_level!r} is unknown; give debug, info, warning or error")
    if log_format not in ("text", "json"):
        fail(f"--log-format: {log_format!r} is unknown; give text or json")
    configure_logging(log_format, log_level.upper(), sys.stderr)
    given = _set(
        queues=tuple(queues) if queues else None,
        worker_id=worker_id,
        concurrency=concurrency,
        batch_size=batch_size,
        queue_buffer=queue_buffer,
        max_in_flight=max_in_flight,
        lease_ms=lease_ms,
        heartbeat_ms=heartbeat_ms,
        poll_ms=poll_ms,
        timeout_ms=timeout_ms,
        timeout_grace_ms=timeout_grace_ms,
        retry=_set(max_retries=max_retries, strategy=retry_strategy, base_ms=retry_base_ms, cap_ms=retry_cap_ms)
        or None,
        grace_seconds=grace_seconds,
        parked_jobs=parked_jobs,
        parked_seconds=parked_seconds,
        health_host=health_host,
        health_port=health_port,
        memory_limit=memory_limit,
        metrics=metrics,
        leader_backends=leader_backends,
        leader_lease_name=leader_lease_name,
        leader_lease_namespace=leader_lease_namespace,
        leader_mongo_url_file=leader_mongo_url_file,
        leader_profile=leader_profile,
        leader_lease_duration=leader_lease_duration,
        leader_renew_deadline=leader_renew_deadline,
        leader_retry_period=leader_retry_period,
        leader_call_timeout=leader_call_timeout,
        leader_on_wedged=leader_on_wedged,
        config=config,
    ) | chosen(redis_url, redis_url_file, prefix)
    names: dict[str, str] = {}
    try:
        names = givers(given, _OPTIONS)
        settings = WorkerSettings(**given)
        check_shared(settings)
        for variable, meant in misspelled(os.environ, map(variable_of, _OPTIONS)).items():
            log.warning("%s is set and is no setting; is %s meant?", variable, meant)
        if show_settings:
            show_values(settings, names, output)
            raise typer.Exit
        loaded = load(application)
        ending = run_to_its_end(_work(loaded, settings))
    except HeadraceError as error:
        report(error, names)
    raise typer.Exit(Exit.OK if ending.clean else Exit.ERROR)


def _set(**options: Any) -> dict[str, Any]:
    """Return the options that were given."""
    return {name: value for name, value in options.items() if value is not None}


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
