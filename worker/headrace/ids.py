"""Job ids: text for people, compact bytes for the store, and the partition that an id belongs to.

The routing rule is fixed for ever: ``crc32(id as UTF-8) mod partitions`` with the IEEE CRC-32 (``tests/unit``
holds golden vectors). It is taken over the text, so the stored form may change without moving a job.
"""

from __future__ import annotations

import re
from zlib import crc32

import uuid_utils

from headrace.errors import InvalidInput

MAX_ID_BYTES = 200
_CANONICAL_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\Z")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def new_id() -> str:
    """Return a fresh UUIDv7 as canonical text (36 characters, ordered by creation time)."""
    return str(uuid_utils.uuid7())


def generate_id() -> tuple[str, bytes]:
    """Return a fresh UUIDv7 as (text, stored form)."""
    fresh = uuid_utils.uuid7()
    return str(fresh), fresh.bytes


def partition_of(job_id: str, partitions: int) -> int:
    """Return the partition, 0 <= p < ``partitions``, that the job id belongs to."""
    return crc32(job_id.encode()) % partitions


def check_id(job_id: str) -> str:
    """Return ``job_id`` if it may name a job: 1..200 bytes of UTF-8 without control characters.

    Raises InvalidInput otherwise.
    """
    if not isinstance(job_id, str) or not job_id:
        raise InvalidInput("id", "is not a non-empty string", "give 1 to 200 bytes of text, or leave it out")
    try:
        size = len(job_id.encode())
    except UnicodeEncodeError:
        raise InvalidInput("id", "is not valid Unicode", "give 1 to 200 bytes of text") from None
    if size > MAX_ID_BYTES:
        raise InvalidInput("id", f"has {size} bytes", f"give at most {MAX_ID_BYTES} bytes")
    if _CONTROL.search(job_id):
        raise InvalidInput("id", "contains control characters", "use printable text")
    return job_id


def encode_id(job_id: str) -> bytes:
    """Return the stored form: 16 raw bytes for a canonical UUID text, else UTF-8.

    Other ids that happen to be 16 bytes long get a zero byte in front, so that no two ids share a form
    (control characters are refused in ids, hence no id starts with a zero byte of its own).
    """
    if len(job_id) == 36 and _CANONICAL_UUID.match(job_id):
        return bytes.fromhex(job_id.replace("-", ""))
    raw = job_id.encode()
    return b"\x00" + raw if len(raw) == 16 else raw


def decode_id(stored: bytes) -> str:
    """Return the id's text; the reverse of `encode_id`."""
    if len(stored) == 16:
        # A third of the time that the UUID class takes; one of the larger costs of a claim otherwise.
        digits = stored.hex()
        return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"
    if len(stored) == 17 and stored[0] == 0:
        return stored[1:].decode()
    return stored.decode()
