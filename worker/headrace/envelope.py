"""The packed record of a job, as it lies in the store.

Big-endian. The store writes the first two fields, so that both are server time::

    u64 created_at ms | u64 run_at ms | body

    body: u8 format (1) | u8 flags (bit 0: the payload is raw bytes, else JSON) | u32 timeout ms (0 = unset)
          | u16 max retries (65535 = unset) | u8 priority lane | u8 n, n bytes type | u16 n, n bytes msgpack extras
          | payload

Extras are a msgpack map: ``h`` headers (text to text), ``r`` retry policy (``[max retries, strategy, base ms, cap
ms]``). Only explicit values are stored; what is unset follows the queue's live settings. The facts that change live
beside it, only for jobs that have any, as msgpack ``[attempt, expiries, last_error, number of events, crashes,
suspicion, [value, note, at]]``, the last only if progress was reported, and behind it each event as ``[status, at,
worker, error]``.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterable
from dataclasses import is_dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import msgpack
from pydantic import BaseModel, TypeAdapter

from headrace.errors import InvalidInput, PayloadTooLarge, ResultNotKept
from headrace.ids import decode_id
from headrace.job import MAX_TIMEOUT_MS, HistoryEntry, Job, Progress
from headrace.retry import MAX_RETRIES, RetryPolicy

FORMAT = 1
RAW_PAYLOAD = 1
UNSET_RETRIES = 0xFFFF
MAX_PAYLOAD_BYTES = 1 << 20
MAX_TYPE_BYTES = 255
_TYPE_REMEDY = f"give 1 to {MAX_TYPE_BYTES} bytes of text"

_BODY = struct.Struct(">BBIHBB")
_RECORD = struct.Struct(">QQBBIHBB")
_SIZE = struct.Struct(">H")
_TIMES_SIZE = _RECORD.size - _BODY.size
_RAW = (bytes, bytearray, memoryview)
_any: TypeAdapter[Any] = TypeAdapter(Any)


def _plain(value: object) -> Any:
    """Return a model as JSON values, under the names that reading it back asks for."""
    if isinstance(value, BaseModel) or (is_dataclass(value) and not isinstance(value, type)):
        return _any.dump_python(value, mode="json", by_alias=True)
    raise TypeError(f"{type(value).__name__} is no JSON value, model or dataclass")


_json = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False, default=_plain).encode
_decoder = json.JSONDecoder()
_scan: Callable[[str, int], tuple[Any, int]] = getattr(_decoder, "scan_once")  # noqa: B009 - the types omit it


def _from_json(text: str) -> Any:
    """Return the value of a JSON text. Raises ValueError.

    The compiled scanner alone, where the text has no white space around its value, as those that are written here:
    looking for it takes longer than reading a short payload.
    """
    try:
        value, end = _scan(text, 0)
    except StopIteration:
        end = -1
    return value if end == len(text) else _decoder.decode(text)


def encode_body(
    type: str,
    payload: Any,
    *,
    headers: dict[str, str] | None = None,
    max_retries: int | None = None,
    timeout_ms: int | None = None,
    priority: int = 1,
    retry: RetryPolicy | None = None,
    max_payload_bytes: int = MAX_PAYLOAD_BYTES,
) -> bytes:
    """Pack a job's body.

    ``payload`` is anything JSON can hold, also with pydantic models and dataclasses in it, or bytes, which are kept as
    they are.

    Raises InvalidInput (field ``type``, ``payload``, ``max_retries``, ``timeout``, ``retry`` or ``headers``) or
    PayloadTooLarge.
    """
    name = type_name(type)
    raw, data = encode_payload(payload)
    if len(data) > max_payload_bytes:
        raise PayloadTooLarge(len(data), max_payload_bytes)
    if max_retries is not None and not (_is_whole(max_retries) and 0 <= max_retries <= MAX_RETRIES):
        raise InvalidInput("max_retries", f"is {max_retries!r}", f"give a whole number, 0 to {MAX_RETRIES}")
    if timeout_ms is not None and not 1 <= timeout_ms <= MAX_TIMEOUT_MS:
        raise InvalidInput("timeout", f"is {timeout_ms} ms", f"give 1 to {MAX_TIMEOUT_MS} ms")
    extras = b"" if headers is None and retry is None else _pack_extras(headers, retry)
    head = _BODY.pack(
        FORMAT,
        RAW_PAYLOAD if raw else 0,
        timeout_ms or 0,
        UNSET_RETRIES if max_retries is None else max_retries,
        priority,
        len(name),
    )
    return b"".join((head, name, _SIZE.pack(len(extras)), extras, data))


def encode_payload(payload: Any) -> tuple[bool, bytes]:
    """Return a payload as stored, and whether it is raw bytes and not JSON. Raises InvalidInput."""
    if isinstance(payload, _RAW):
        return True, bytes(payload)
    try:
        return False, _json(payload).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(
            "payload", f"cannot be written as JSON ({error})", "give JSON values, a model or bytes"
        ) from None


_JSON_RESULT, _RAW_RESULT, _NO_RESULT = b"j", b"r", b"-"
MAX_REASON_CHARS = 200


class NotSent(NamedTuple):
    """Stands for what a handler returned in a process of its own, if that could not be sent from there."""

    problem: str


def encode_result(value: Any) -> bytes:
    """Pack what a handler returned, as a payload is: one letter for the kind, then JSON or the bytes; None: b"".

    Raises InvalidInput.
    """
    if value is None:
        return b""
    if isinstance(value, NotSent):
        raise InvalidInput("result", value.problem, "return JSON values, a model or bytes")
    raw, data = encode_payload(value)
    return (_RAW_RESULT if raw else _JSON_RESULT) + data


def no_result(reason: str) -> bytes:
    """Pack why a result was not kept."""
    return _NO_RESULT + reason[:MAX_REASON_CHARS].encode(errors="replace")


def decode_result(packed: bytes) -> Any:
    """Return what `encode_result` packed.

    Raises ResultNotKept with the reason that `no_result` packed, and ValueError for anything else.
    """
    kind, data = packed[:1], packed[1:]
    if not kind:
        return None
    if kind == _RAW_RESULT:
        return data
    if kind == _JSON_RESULT:
        return _from_json(data.decode())
    if kind == _NO_RESULT:
        raise ResultNotKept(data.decode(errors="replace"))
    raise ValueError("the result is of a kind that this version of Headrace does not read")


def type_name(type: str) -> bytes:
    """Return the type of a job as it is stored. Raises InvalidInput."""
    if not isinstance(type, str):
        raise InvalidInput("type", f"is {type.__class__.__name__} and not text", _TYPE_REMEDY)
    return _checked_type_name(type)


@lru_cache(maxsize=1024)
def _checked_type_name(type: str) -> bytes:
    remedy = _TYPE_REMEDY
    try:
        name = type.encode()
    except UnicodeEncodeError:
        raise InvalidInput("type", "is not valid Unicode", remedy) from None
    if not name:
        raise InvalidInput("type", "is empty", remedy)
    if len(name) > MAX_TYPE_BYTES:
        raise InvalidInput("type", f"has {len(name)} bytes", remedy)
    if not type.isprintable():  # a zero byte parts type and id where jobs are parked
        raise InvalidInput("type", "contains control characters", "give printable text")
    return name


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _pack_extras(headers: dict[str, str] | None, retry: RetryPolicy | None) -> bytes:
    problem, remedy = "are not a map of text to text", "give text for names and values"
    if headers is None:
        headers = {}
    if not isinstance(headers, dict) or not all(isinstance(text, str) for pair in headers.items() for text in pair):
        raise InvalidInput("headers", problem, remedy)
    found: dict[str, Any] = {"h": headers} if headers else {}
    if retry is not None:
        if not isinstance(retry, RetryPolicy):
            raise InvalidInput("retry", f"is a {type(retry).__name__}", "give a RetryPolicy")
        found["r"] = [retry.max_retries, retry.strategy, retry.base_ms, retry.cap_ms]
    if not found:
        return b""
    try:
        extras: bytes = msgpack.packb(found)
    except UnicodeEncodeError:
        raise InvalidInput("headers", problem, remedy) from None
    if len(extras) > 0xFFFF:
        raise InvalidInput("headers", f"take {len(extras)} bytes", "give at most 65535 bytes")
    return extras


def record_body(record: bytes) -> bytes:
    """Return the body of a stored record: what `encode_body` made, without the times that the store wrote."""
    return record[_TIMES_SIZE:]


def record_type(record: bytes) -> str:
    """Return the type of the job in a stored record."""
    size: int = _RECORD.unpack_from(record)[7]
    return record[_RECORD.size : _RECORD.size + size].decode()


def body_priority(body: bytes) -> int:
    """Return the priority lane, 0 to 2, in a body."""
    priority: int = _BODY.unpack_from(body)[4]
    return priority


def _read_extras(job: Job, packed: bytes) -> None:
    extras = msgpack.unpackb(packed)
    job.headers = extras.get("h", {})
    if "r" in extras:
        max_retries, strategy, base_ms, cap_ms = extras["r"]
        job.retry = RetryPolicy(max_retries=max_retries, strategy=strategy, base_ms=base_ms, cap_ms=cap_ms)


def pack_changes(facts: list[Any], history: Iterable[Any]) -> bytes:
    """Return the facts of a job that change, and behind them the events of its history, oldest first, as stored."""
    return b"".join(msgpack.packb(part, unicode_errors="replace") for part in (facts, *history))


def unpack_changes(changes: bytes) -> tuple[list[Any], list[Any]]:
    """Return the facts of a job that change, and the events of its history, oldest first."""
    unpacker = msgpack.Unpacker(unicode_errors="replace")
    unpacker.feed(changes)
    facts, *history = unpacker
    return facts, history


def decode_record(stored_id: bytes, record: bytes, changes: bytes, *, queue: str, version: int, partition: int) -> Job:
    """Unpack a record and its changes (b"" for none) into a Job.

    Raises ValueError if the record is not of a format that this version of Headrace reads.
    """
    created_at, run_at, fmt, flags, timeout_ms, retries, priority, type_size = _RECORD.unpack_from(record)
    if fmt != FORMAT:
        raise ValueError(f"job {decode_id(stored_id)!r} has record format {fmt}; this version reads format {FORMAT}")
    position = _RECORD.size + type_size
    (extras_size,) = _SIZE.unpack_from(record, position)
    data = record[position + 2 + extras_size :]
    job = Job(
        decode_id(stored_id),
        queue,
        record[_RECORD.size : position].decode(),
        data if flags & RAW_PAYLOAD else _from_json(data.decode()),
        created_at,
        run_at,
        version,
        partition,
        {},
        None if retries == UNSET_RETRIES else retries,
        timeout_ms or None,
        priority,
    )
    if extras_size:
        _read_extras(job, record[position + 2 : position + 2 + extras_size])
    if changes:
        (job.attempt, job.expiries, job.last_error, _, job.crashes, suspicion, *progress), history = unpack_changes(
            changes
        )
        job.history = tuple(HistoryEntry(*entry) for entry in history)
        job.suspect, job.alone = suspicion > 0, suspicion > 1
        if progress:
            job.progress = Progress(*progress[0])
    return job
