"""What worker and handler process tell each other: frames of a length (u32) and a msgpack list that begins with a kind.

To the process::

    start  [[[module, name, file], takes batches], ...], level of logs
    call   number of the function, [job, ...], seconds left, [payload, ...] or nil

From the process::

    ready | failed text
    began | log {fields} | progress number of the job, value, note | ended outcome

A job is ``[stored id, record, changes, queue, version, partition, fencing token]``, as it came from the store; payloads
are there only if middleware has changed one. Payloads and results are ``[raw, bytes]``: bytes as they are, or JSON.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgpack

from headrace.control import Dead, Retry, Snooze
from headrace.envelope import NotSent, decode_record, encode_payload
from headrace.errors import InvalidInput, InvalidPayload, RaisedInProcess
from headrace.job import Job
from headrace.stores.base import MAX_RESULT_BYTES, Claimed
from headrace.topology import PartitionRef
from headrace.worker.outcomes import error_text

LENGTH = struct.Struct(">I")
Outcome = list[Any]


def frame(kind: str, *fields: Any) -> bytes:
    """Return a frame."""
    body: bytes = msgpack.packb([kind, *fields], unicode_errors="replace")
    return LENGTH.pack(len(body)) + body


def opened(body: bytes) -> list[Any]:
    """Return the list of a frame, without its length."""
    found: list[Any] = msgpack.unpackb(body, strict_map_key=False)
    return found


# ---- jobs ------------------------------------------------------------------------------------------------------------


def packed_job(ref: PartitionRef, claimed: Claimed, fencing_token: int) -> list[Any]:
    """Return a job as it came from the store."""
    place = [ref.queue, ref.version, ref.partition]
    return [claimed.key[1:], claimed.record, claimed.changes, *place, fencing_token]


def unpacked_job(packed: list[Any]) -> tuple[Job, int]:
    """Return the job, and the fencing token of its lease."""
    stored_id, record, changes, queue, version, partition, fencing_token = packed
    job = decode_record(stored_id, record, changes, queue=queue, version=version, partition=partition)
    return job, fencing_token


def packed_value(value: Any) -> list[Any]:
    """Return a payload or a result. Raises InvalidInput if it is neither bytes nor JSON."""
    raw, data = encode_payload(value)
    return [raw, data]


def unpacked_value(packed: list[Any]) -> Any:
    """Return the payload or the result."""
    raw, data = packed
    return data if raw else json.loads(data)


# ---- outcomes --------------------------------------------------------------------------------------------------------


def returned(value: Any) -> Outcome:
    """Return the outcome of a run that returned ``value``; `NotSent` comes back if it is no JSON value or too large."""
    try:
        packed = packed_value(value)
    except InvalidInput as error:
        return ["unsent", error.problem]
    if (size := len(packed[1])) > MAX_RESULT_BYTES:
        return ["unsent", f"has {size} bytes, the limit is {MAX_RESULT_BYTES}"]
    return ["ok", packed]


def raised(error: BaseException) -> Outcome:
    """Return the outcome of a run that raised ``error``."""
    match error:
        case Retry():
            return ["retry", error.after_ms, str(error)]
        case Dead():
            return ["dead", str(error)]
        case Snooze():
            return ["snooze", error.at_ms, error.after_ms]
        case InvalidPayload():
            return ["invalid", error.fields, error.more]
        case _:
            return ["error", error_text(error)]


def each(results: Sequence[object]) -> Outcome:
    """Return the outcome of a batch that returned a result for each job; exceptions are errors of single jobs."""
    return ["each", [raised(each) if isinstance(each, BaseException) else returned(each) for each in results]]


def read(outcome: Outcome) -> tuple[BaseException | None, Any]:
    """Return what an outcome says: the error that it stands for, if any, and the value."""
    match outcome:
        case ["ok", value]:
            return None, unpacked_value(value)
        case ["unsent", problem]:
            return None, NotSent(problem)
        case ["each", outcomes]:
            pairs = [read(each) for each in outcomes]
            return None, [value if error is None else error for error, value in pairs]
        case ["retry", after_ms, reason]:
            return Retry(None if after_ms is None else after_ms / 1000, reason), None
        case ["dead", reason]:
            return Dead(reason), None
        case ["snooze", None, after_ms]:
            return Snooze(timedelta(milliseconds=after_ms)), None
        case ["snooze", at_ms, _]:
            return Snooze(datetime.fromtimestamp(at_ms / 1000, UTC)), None
        case ["invalid", fields, more]:
            return InvalidPayload([(path, code) for path, code in fields], more), None
        case ["error", text]:
            return RaisedInProcess(text), None
        case _:
            raise ValueError(f"a handler process told an outcome of unknown kind {outcome[:1]}")
