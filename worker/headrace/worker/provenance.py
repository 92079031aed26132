"""Which value of each setting holds, and who gave it: for people who wonder, and for messages that must name it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from headrace.connection import EnvironmentSource, unless_overruled, variable
from headrace.retry import RetryPolicy
from headrace.settings import QueueSettings
from headrace.stores import server_of
from headrace.worker.settings import WorkerSettings
from headrace.worker.settings_file import TABLE, file_values

DEFAULT = "default"

_OF_QUEUE = ("retry", "timeout_ms", "lease_ms")


class Value(NamedTuple):
    """A value that holds. ``given_by``: an option, a variable, ``[worker] name`` of the file, a queue, or a default."""

    setting: str
    value: object
    given_by: str


def givers(given: Mapping[str, Any], options: Mapping[str, str]) -> dict[str, str]:
    """Return by whom settings (``lease_ms``, ``retry.base_ms``) were given, without those that nobody gave.

    ``given`` came from the command line, where ``options`` are the names; the others are looked for as `WorkerSettings`
    does. Raises InvalidInput for the file.
    """
    environment = unless_overruled(EnvironmentSource(WorkerSettings)(), given)
    file = file_values(WorkerSettings, {**environment, **given})
    found: dict[str, str] = {}
    for name in _leaves(given):
        found[name] = options[name]
    for name in _leaves(environment):
        found.setdefault(name, variable(name))
    for name in _leaves(file):
        found.setdefault(name, f"[{TABLE}] {name}")
    return found


def effective(settings: WorkerSettings, given_by: Mapping[str, str]) -> list[Value]:
    """Return every setting with the value that it has in a worker of these settings; no credential is among them.

    ``given_by``: see `givers`. Raises InvalidInput if the URL or its file cannot be used.
    """
    policy = settings.retry or RetryPolicy()
    values: dict[str, object] = {
        **{name: _plain(getattr(settings, name)) for name in WorkerSettings.model_fields if name != "retry"},
        "redis_url": server_of(settings.store_url()),
        **{f"retry.{name}": value for name, value in policy.model_dump().items()},
    }
    if settings.redis_url_file is not None:
        given_by = {**given_by, "redis_url": given_by.get("redis_url_file", DEFAULT)}
    unset = _what_unset_comes_to(settings)
    return [
        Value(name, value, given_by[name]) if name in given_by else unset.get(name, Value(name, value, DEFAULT))
        for name, value in values.items()
    ]


def overruled(queue: str, live: QueueSettings) -> list[Value]:
    """Return the settings that a queue's live ones overrule."""
    by = f"queue {queue}"
    found = []
    for name in _OF_QUEUE:
        value = getattr(live, name)
        if isinstance(value, RetryPolicy):
            found += [Value(f"retry.{each}", inner, by) for each, inner in value.model_dump().items()]
        elif value is not None:
            found.append(Value(name, value, by))
    return found


def _what_unset_comes_to(settings: WorkerSettings) -> dict[str, Value]:
    pod = os.environ.get("POD_IP")
    found = (
        Value("worker_id", settings.worker_id, "host name"),
        Value("batch_size", settings.claim_limit, DEFAULT),
        Value("max_in_flight", settings.in_flight_limit, "concurrency + queue_buffer + 1000"),
        Value("heartbeat_ms", settings.heartbeat_for(settings.lease_ms), "lease_ms / 3"),
        Value("health_host", settings.health_address, "POD_IP" if pod else DEFAULT),
    )
    return {value.setting: value for value in found}


def _leaves(tree: Mapping[str, Any]) -> Iterator[str]:
    for name, value in tree.items():
        if isinstance(value, Mapping):
            yield from (f"{name}.{inner}" for inner in value)
        else:
            yield name


def _plain(value: object) -> object:
    if isinstance(value, tuple):
        return list(value)
    return value if value is None or isinstance(value, str | int | float) else str(value)
