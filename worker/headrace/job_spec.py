"""What a caller says of a new job, checked and packed: bad input is found before anything is sent."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from headrace.envelope import encode_body
from headrace.errors import InvalidInput, PayloadTooLarge
from headrace.ids import check_id, encode_id, generate_id
from headrace.stores.base import LANE, NewJob

_LONGEST_SECONDS = 100 * 366 * 24 * 3600
_LAST_SECOND = 253_402_300_799  # of the year 9999


@dataclass(frozen=True, slots=True)
class JobSpec:
    """One job of `Producer.enqueue_many`; the fields are the arguments of `Producer.enqueue`."""

    type: str
    payload: Any = None
    id: str | None = None
    run_at: datetime | float | None = None
    delay: timedelta | float | None = None
    max_retries: int | None = None
    timeout: timedelta | float | None = None
    headers: dict[str, str] | None = None


class PackedJob(NamedTuple):
    """A job ready to be sent. ``given``: its id is the caller's, so it may live already."""

    id: str
    job: NewJob
    given: bool


def pack(spec: JobSpec, max_payload_bytes: int) -> PackedJob:
    """Check and pack one job. Raises InvalidInput or PayloadTooLarge, which name the field."""
    body = encode_body(
        spec.type,
        spec.payload,
        headers=spec.headers,
        max_retries=spec.max_retries,
        timeout_ms=None if spec.timeout is None else _duration_ms("timeout", spec.timeout),
        max_payload_bytes=max_payload_bytes,
    )
    if spec.id is None:
        job_id, stored = generate_id()
    else:
        job_id = check_id(spec.id)
        stored = encode_id(job_id)
    return PackedJob(job_id, NewJob(LANE + stored, _when(spec), body), spec.id is not None)


def pack_all(specs: Iterable[JobSpec], max_payload_bytes: int) -> list[PackedJob]:
    """Check and pack many jobs; errors as in `pack`, with the index of the job: ``jobs[777].delay``."""
    if not isinstance(specs, Iterable):
        raise InvalidInput("jobs", f"is a {type(specs).__name__}", "give a list of JobSpec")
    packed = []
    for index, spec in enumerate(specs):
        if not isinstance(spec, JobSpec):
            raise InvalidInput(f"jobs[{index}]", f"is a {type(spec).__name__}", "give a JobSpec")
        try:
            packed.append(pack(spec, max_payload_bytes))
        except InvalidInput as error:
            raise InvalidInput(f"jobs[{index}].{error.field}", error.problem, error.remedy) from None
        except PayloadTooLarge as error:
            raise PayloadTooLarge(error.size, error.limit, f"jobs[{index}].payload") from None
    return packed


def _duration_ms(field: str, value: timedelta | float) -> int:
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    if not _is_number(seconds) or seconds < 0:
        raise InvalidInput(field, f"is {_shown(value)}", "give a timedelta or a number of seconds, not negative")
    if seconds > _LONGEST_SECONDS:
        raise InvalidInput(field, f"is {_shown(value)}", "give at most 100 years")
    return round(seconds * 1000)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value == value


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}..."


def _when(spec: JobSpec) -> int:
    """Return the form that the store takes: 0 now, > 0 at that ms, < 0 after that many ms."""
    if spec.run_at is not None and spec.delay is not None:
        raise InvalidInput("run_at", "is given together with delay", "give one of the two")
    if spec.delay is not None:
        return -_duration_ms("delay", spec.delay)
    if spec.run_at is None:
        return 0
    if isinstance(spec.run_at, datetime):
        if spec.run_at.tzinfo is None:
            raise InvalidInput("run_at", "is a datetime without a time zone", "give an aware datetime")
        return max(1, round(spec.run_at.timestamp() * 1000))
    if not _is_number(spec.run_at) or not 0 <= spec.run_at <= _LAST_SECOND:
        remedy = "give an aware datetime or seconds since the epoch; for a time from now use delay"
        raise InvalidInput("run_at", f"is {_shown(spec.run_at)}", remedy)
    return max(1, round(spec.run_at * 1000))
