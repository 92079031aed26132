"""Queues described in a file, in the form of Queue objects, for whoever runs without Kubernetes.

A document is a Queue object, of which what only Kubernetes can do is left aside and told. What a spec leaves out is up
to the workers' own settings; a pause that it says nothing of stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from math import ceil
from typing import Any, Final

import yaml
from pydantic import ValidationError

from headrace.errors import InvalidInput
from headrace.settings import QueueSettings
from headrace.topology import check_partitions, check_queue_name, check_version

KIND: Final = "Queue"
API_GROUP: Final = "headrace.dev"
OF_KUBERNETES: Final = (
    "connection", "promotion", "maxDrainingVersions", "historyLimit", "deletionPolicy", "leaderElection", "workers",
    "scaling", "drain.deletionTimeoutSeconds",
)  # fmt: skip
"""Fields of a spec that say nothing without an operator."""

_NAMES: Final[dict[str, str]] = {
    "retry.maxRetries": "retry.max_retries",
    "retry.strategy": "retry.strategy",
    "retry.baseMilliseconds": "retry.base_ms",
    "retry.capMilliseconds": "retry.cap_ms",
    "retry.crashLimit": "crash_limit",
    "timeoutSeconds": "timeout_ms",
    "leaseSeconds": "lease_ms",
    "limits.ratePerSecond": "rate_per_second",
    "limits.maxInFlight": "max_in_flight",
    "limits.maxLength": "max_length",
    "retention.doneSeconds": "retention.done_seconds",
    "retention.doneCount": "retention.done_count",
    "retention.doneBytes": "retention.done_bytes",
    "retention.deadCount": "retention.dead_count",
    "retention.historyEntries": "retention.history_entries",
    "drain.policy": "drain.policy",
    "drain.order": "drain.order",
    "drain.timeoutSeconds": "drain.timeout_ms",
    "drain.onTimeout": "drain.on_timeout",
    "mode": "mode",
    "stopPolicy": "stop",
}
"""Live fields of a spec, and the settings that they are."""
_WORDS: Final[dict[str, dict[str, str]]] = {
    "drain.policy": {"Wait": "wait", "Migrate": "migrate"},
    "drain.order": {"Relaxed": "relaxed", "Strict": "strict"},
    "drain.onTimeout": {"Wait": "wait", "Migrate": "migrate", "DeadLetter": "dead_letter"},
    "mode": {"Shared": "shared", "LeaderOnly": "leader_only"},
    "stopPolicy": {"None": "none", "Hold": "hold", "HoldAndDrain": "hold_and_drain"},
}
_PARTS: Final = ("retry", "limits", "retention", "drain")
_OTHERS: Final = ("queueName", "version", "partitions", "paused")
_ALL: Final = (*_NAMES, *_OTHERS, *OF_KUBERNETES)


@dataclass(frozen=True, slots=True)
class QueueFile:
    """A queue as a file wants it.

    ``stop_given``: it says whether the queue is paused. ``ignored``: fields that say nothing without an operator.
    """

    queue: str
    version: int
    partitions: int
    settings: QueueSettings
    stop_given: bool
    ignored: tuple[str, ...] = ()


class _Loader(yaml.SafeLoader):
    """Refuses a key that stands twice in a mapping, as kubectl does: PyYAML would take the last one and say nothing."""

    def compose_mapping_node(self, anchor: dict[Any, yaml.Node]) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        seen: set[tuple[str, str]] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
                if (key.tag, key.value) in seen:
                    line = key.start_mark.line + 1
                    raise InvalidInput("file", f"has {key.value!r} twice in one mapping (line {line})", "give it once")
                seen.add((key.tag, key.value))
        return node


def read_queues(text: str) -> list[QueueFile]:
    """Return the queues that YAML or JSON describes, a document each.

    Raises InvalidInput, which names document or queue, and field.
    """
    try:
        documents = [each for each in yaml.load_all(text, _Loader) if each is not None]
    except yaml.YAMLError as error:
        where = getattr(error, "problem_mark", None)
        line = f" (line {where.line + 1})" if where is not None else ""
        problem = getattr(error, "problem", None) or "it cannot be read"
        raise InvalidInput("file", f"is not YAML: {problem}{line}", "give Queue objects") from None
    if not documents:
        raise InvalidInput("file", "describes no queue", "give a Queue object, as in docs/queue.md")
    found = [_queue(document, number) for number, document in enumerate(documents, 1)]
    names = [each.queue for each in found]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise InvalidInput("file", f"describes queue {twice[0]!r} twice", "describe each queue once")
    return found


def _queue(document: Any, number: int) -> QueueFile:
    where = f"document {number}"
    if not isinstance(document, Mapping) or document.get("kind") != KIND or not _is_ours(document.get("apiVersion")):
        raise InvalidInput(where, "is no Queue object", f"give apiVersion {API_GROUP}/v1alpha1 and kind {KIND}")
    spec, metadata = document.get("spec"), document.get("metadata")
    if not isinstance(spec, Mapping):
        raise InvalidInput(f"{where}: spec", "is missing", "give version and partitions at least")
    name = spec.get("queueName") or (metadata.get("name") if isinstance(metadata, Mapping) else None)
    if name is None:
        raise InvalidInput(f"{where}: metadata.name", "is missing", "name the queue")
    queue = check_queue_name(name)
    fields = dict(_flat(spec))
    _check_names(queue, fields)
    ignored = tuple(each for each in fields if each in OF_KUBERNETES)
    settings, stop_given = _settings(queue, spec, fields)
    for needed in ("version", "partitions"):
        if needed not in fields:
            raise InvalidInput(f"queue {queue!r}: spec.{needed}", "is missing", "give a whole number")
    try:
        version, partitions = check_version(fields["version"]), check_partitions(fields["partitions"])
    except InvalidInput as error:
        raise InvalidInput(f"queue {queue!r}: spec.{error.field}", error.problem, error.remedy) from None
    return QueueFile(queue, version, partitions, settings, stop_given, ignored)


def _is_ours(version: object) -> bool:
    return isinstance(version, str) and version.partition("/")[0] == API_GROUP


def _flat(spec: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the fields of a spec under dotted names; what only Kubernetes has, as one each."""
    for name, value in spec.items():
        if name in _PARTS and isinstance(value, Mapping):
            yield from ((f"{name}.{inner}", each) for inner, each in value.items())
        elif not (name in _PARTS and value is None):
            yield str(name), value


def _check_names(queue: str, fields: Mapping[str, Any]) -> None:
    for name in fields:
        if name not in _ALL:
            close = get_close_matches(name, _ALL, 1)
            remedy = f"is {close[0]} meant?" if close else "leave it out"
            raise InvalidInput(f"queue {queue!r}: spec.{name}", "is no field of a Queue", remedy)


def _settings(queue: str, spec: Mapping[str, Any], fields: Mapping[str, Any]) -> tuple[QueueSettings, bool]:
    found: dict[str, Any] = {"retention": {}} if isinstance(spec.get("retention"), Mapping) else {}
    for name, setting in _NAMES.items():
        if fields.get(name) is not None:
            _put(found, setting, _value(queue, name, fields[name]))
    paused = fields.get("paused")
    if paused is not None and not isinstance(paused, bool):
        raise InvalidInput(f"queue {queue!r}: spec.paused", f"is {paused!r}", "give true or false")
    if paused:
        if found.get("stop") == "hold_and_drain":
            remedy = "set stopPolicy to None to pause"
            raise InvalidInput(f"queue {queue!r}: spec.paused", "contradicts stopPolicy HoldAndDrain", remedy)
        found["stop"] = "hold"
    try:
        return QueueSettings.model_validate(found), paused is not None or "stop" in found
    except ValidationError as error:
        raise _refused(queue, error) from None


def _value(queue: str, name: str, value: Any) -> Any:
    if name in _WORDS:
        words = _WORDS[name]
        if not isinstance(value, str) or value not in words:
            raise InvalidInput(f"queue {queue!r}: spec.{name}", f"is {value!r}", f"give {', '.join(words)}")
        return words[value]
    if not name.endswith("Seconds") or name == "retention.doneSeconds":
        return value
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidInput(f"queue {queue!r}: spec.{name}", f"is {value!r}", "give a whole number of seconds")
    return None if name == "drain.timeoutSeconds" and value == 0 else value * 1000


def _put(found: dict[str, Any], setting: str, value: Any) -> None:
    *parents, last = setting.split(".")
    for parent in parents:
        found = found.setdefault(parent, {})
    found[last] = value


def _refused(queue: str, error: ValidationError) -> InvalidInput:
    problem = error.errors(include_url=False)[0]
    setting = ".".join(map(str, problem["loc"]))
    fields = {known: name for name, known in _NAMES.items()}
    field = fields.get(setting, setting)
    told = problem["msg"].removeprefix("Value error, ")
    scale = 1000 if field.endswith("Seconds") and setting.endswith("_ms") else 1
    limits = problem.get("ctx", {})
    if (least := limits.get("ge")) is not None:
        return InvalidInput(_spec(queue, field), "is too small", f"give {ceil(least / scale)} or more")
    if (above := limits.get("gt")) is not None:
        return InvalidInput(_spec(queue, field), "is too small", f"give more than {above:g}")
    if (most := limits.get("le")) is not None:
        return InvalidInput(_spec(queue, field), "is too large", f"give at most {most / scale:g}")
    if problem["type"] == "value_error":  # of fields that do not fit together
        return InvalidInput(_spec(queue, field), _renamed(told, setting, fields), "change one of them")
    return InvalidInput(_spec(queue, field), f"is {problem['input']!r}", told[0].lower() + told[1:])


def _spec(queue: str, field: str) -> str:
    return f"queue {queue!r}: spec.{field}" if field else f"queue {queue!r}: spec"


def _renamed(told: str, part: str, fields: Mapping[str, str]) -> str:
    """Return a message about settings of one part with the names that the file has."""
    for setting, field in fields.items():
        if setting.startswith(f"{part}."):
            told = told.replace(setting.removeprefix(f"{part}."), field.rpartition(".")[2])
    return told


def summaries(found: Sequence[QueueFile]) -> list[str]:
    """Return a line per queue of which something is left aside."""
    return [
        f"queue {each.queue}: {', '.join(each.ignored)} say nothing without an operator, and are left aside"
        for each in found
        if each.ignored
    ]
