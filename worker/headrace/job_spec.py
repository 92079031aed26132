"""What a caller says of a new job, checked and packed: bad input is found before anything is sent."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from headrace.envelope import encode_body
from headrace.errors import HeadraceError, InvalidInput, PayloadTooLarge
from headrace.ids import check_id, encode_id, generate_id
from headrace.job_fields import Priority, duration_ms, is_number, priority_number, shortened
from headrace.retry import RetryPolicy
from headrace.stores.base import NewJob

_LAST_SECOND = 253_402_300_799  # of the year 9999
_LANES = (b"0", b"1", b"2")


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
    priority: Priority | None = None
    retry: RetryPolicy | None = None


class PackedJob(NamedTuple):
    """A job ready to be sent. ``given``: its id is the caller's, so it may live already."""

    id: str
    job: NewJob
    given: bool


def pack(spec: JobSpec, max_payload_bytes: int) -> PackedJob:
    """Check and pack one job. Raises InvalidInput or PayloadTooLarge, which name the field."""
    return pack_fields(
        spec.type,
        spec.payload,
        spec.id,
        spec.run_at,
        spec.delay,
        spec.max_retries,
        spec.timeout,
        spec.headers,
        spec.priority,
        spec.retry,
        max_payload_bytes,
    )


def pack_fields(
    type: str,
    payload: Any,
    id: str | None,
    run_at: datetime | float | None,
    delay: timedelta | float | None,
    max_retries: int | None,
    timeout: timedelta | float | None,
    headers: dict[str, str] | None,
    priority: Priority | None,
    retry: RetryPolicy | None,
    max_payload_bytes: int,
) -> PackedJob:
    """Do as `pack` does, of the fields of a JobSpec."""
    number = priority_number(priority)
    body = encode_body(
        type,
        payload,
        headers=headers,
        max_retries=max_retries,
        timeout_ms=None if timeout is None else duration_ms("timeout", timeout),
        priority=number,
        retry=retry,
        max_payload_bytes=max_payload_bytes,
    )
    if id is None:
        job_id, stored = generate_id()
    else:
        job_id = check_id(id)
        stored = encode_id(job_id)
    when = 0 if run_at is None and delay is None else _when(run_at, delay)
    return PackedJob(job_id, NewJob(_LANES[number] + stored, when, body), id is not None)


def pack_all(specs: Iterable[JobSpec], max_payload_bytes: int) -> list[PackedJob]:
    """Check and pack many jobs; errors as in `pack`, with the index of the job: ``jobs[777].delay``."""
    packed = []
    for each in _pack_each(specs, max_payload_bytes):
        if isinstance(each, HeadraceError):
            raise each
        packed.append(each)
    return packed


def pack_each(specs: Iterable[JobSpec], max_payload_bytes: int) -> list[PackedJob | HeadraceError]:
    """Check and pack many jobs; each of them, or its error as in `pack_all`.

    Raises InvalidInput if ``specs`` cannot be iterated.
    """
    return list(_pack_each(specs, max_payload_bytes))


def _pack_each(specs: Any, max_payload_bytes: int) -> Iterator[PackedJob | HeadraceError]:
    if not isinstance(specs, Iterable):
        raise InvalidInput("jobs", f"is a {type(specs).__name__}", "give a list of JobSpec")
    for index, spec in enumerate(specs):
        if not isinstance(spec, JobSpec):
            yield InvalidInput(f"jobs[{index}]", f"is a {type(spec).__name__}", "give a JobSpec")
            continue
        try:
            yield pack(spec, max_payload_bytes)
        except InvalidInput as error:
            yield InvalidInput(f"jobs[{index}].{error.field}", error.problem, error.remedy)
        except PayloadTooLarge as error:
            yield PayloadTooLarge(error.size, error.limit, f"jobs[{index}].payload")


def lane(priority: int) -> bytes:
    """Return the lane byte that keys of this priority begin with."""
    return _LANES[priority]


def _when(run_at: datetime | float | None, delay: timedelta | float | None) -> int:
    """Return the form that the store takes: 0 now, > 0 at that ms, < 0 after that many ms."""
    if run_at is not None and delay is not None:
        raise InvalidInput("run_at", "is given together with delay", "give one of the two")
    if delay is not None:
        return -duration_ms("delay", delay)
    if run_at is None:
        return 0
    if isinstance(run_at, datetime):
        if run_at.tzinfo is None:
            raise InvalidInput("run_at", "is a datetime without a time zone", "give an aware datetime")
        return max(1, round(run_at.timestamp() * 1000))
    if not is_number(run_at) or not 0 <= run_at <= _LAST_SECOND:
        remedy = "give an aware datetime or seconds since the epoch; for a time from now use delay"
        raise InvalidInput("run_at", f"is {shortened(run_at)}", remedy)
    return max(1, round(run_at * 1000))
