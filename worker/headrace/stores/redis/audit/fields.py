"""Whether what lies in the fields of a key, or in the members of one, could have been written by any step.

Pure predicates of one name and its value. What a newer release may have added is sound; so is a text
that only people read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Final, NamedTuple

import msgpack

from headrace.stores.protocols.statistics import COUNTERS
from headrace.stores.redis.registry import beat_of
from headrace.stores.redis.schedules import mark_of
from headrace.stores.redis.statistics import depths_of
from headrace.topology import is_queue_name

Sound = Callable[[bytes, bytes], bool]
"""Told a field and its value, or a member and its score."""


class Entries(NamedTuple):
    """How the entries of one key are judged. ``beside``: fields that mean nothing without the one that is removed."""

    sound: Sound
    beside: tuple[str, ...] = ()


_WHOLE: Final = re.compile(rb"-?[0-9]{1,18}")
_META_STATES: Final = (b"A", b"D", b"C", b"T")
_META_WHOLE: Final = frozenset(
    (
        b"e", b"n", b"i", b"t", b"marked", b"enq", b"rdy", b"exp", b"done", b"failed", b"drop", b"took", b"shifts",
        b"fe", b"ft", b"roomt",
    )
)  # fmt: skip
_META_NUMBERS: Final = frozenset((b"rate", b"cap", b"len", b"crash", b"deadmax", b"hist", b"tokens", b"at"))
_META_FLAGS: Final = frozenset((b"hold", b"shut", b"only"))
_KEPT: Final = re.compile(rb"(?:[0-9]+:[0-9]+:[0-9]+)?")
_FINISHED: Final = re.compile(rb"[0-9]+:-?[0-9]+:[0-9]+-[0-9]+:[0-9]+:[0-9]+")


def _number(value: bytes) -> bool:
    try:
        return float(value) == float(value)
    except ValueError:
        return False


def _text(value: bytes) -> bool:
    try:
        value.decode()
    except ValueError:
        return False
    return True


def _json_map(value: bytes) -> bool:
    try:
        return isinstance(json.loads(value), dict)
    except ValueError:
        return False


def _reads(read: Callable[[bytes], object], value: bytes) -> bool:
    try:
        read(value)
    except (ValueError, TypeError, LookupError, AttributeError, msgpack.UnpackException):
        return False
    return True


def _sound_meta(field: bytes, value: bytes) -> bool:
    """Whether a field of a partition's ``meta`` can be read; see the table of keys in docs/protocol.md."""
    if field == b"s":
        return value in _META_STATES
    if field in _META_WHOLE or field.startswith(b"once:"):
        return _WHOLE.fullmatch(value) is not None or (field == b"ft" and _number(value))
    if field in _META_NUMBERS:
        return not value or _number(value)
    if field in _META_FLAGS:
        return value in (b"", b"1")
    match field:
        case b"keep":
            return _KEPT.fullmatch(value) is not None
        case b"fin":
            return _FINISHED.fullmatch(value) is not None
        case b"succ":
            return _json_map(value)
    return True


def _sound_member(member: bytes, _: bytes) -> bool:
    return _text(member)


def _sound_alarm(field: bytes, value: bytes) -> bool:
    return field != b"t" or _number(value)


def _sound_about(worker: bytes, packed: bytes) -> bool:
    return _text(worker) and _reads(beat_of, packed)


def _sound_statistics(field: bytes, value: bytes) -> bool:
    if field == b"at" or field.decode(errors="replace") in COUNTERS:
        return _WHOLE.fullmatch(value) is not None
    match field:
        case b"depth":
            return _reads(depths_of, value)
        case b"seen":
            return _reads(lambda packed: dict(msgpack.unpackb(packed, raw=True, strict_map_key=False)), value)
    return True


def _sound_schedule(name: bytes, mark: bytes) -> bool:
    if name.startswith(b":"):
        return name != b":e" or _WHOLE.fullmatch(mark) is not None
    return _text(name) and _reads(mark_of, mark)


def _sound_fence(field: bytes, value: bytes) -> bool:
    numbers = (b"epoch", b"rank", b"term", b"exp", b"since")
    return _WHOLE.fullmatch(value) is not None if field in numbers or field.startswith(b"hw:") else _text(value)


def _sound_lock(field: bytes, value: bytes) -> bool:
    if field in (b"term", b"seq", b"acquired", b"epoch"):
        return _WHOLE.fullmatch(value) is not None
    return _number(value) if field == b"duration" else _text(value)


def _sound_queue(name: bytes, _: bytes) -> bool:
    return _text(name) and is_queue_name(name.decode())


META_ENTRIES: Final = Entries(_sound_meta, ("e",))
"""Of a partition. Without the epoch of its settings SETTLE makes all of them anew; a sum begins at nothing."""
QUEUE_ENTRIES: Final = {
    **dict.fromkeys(("workers", "gone", "stopping"), Entries(_sound_member)),
    "about": Entries(_sound_about),
    "alarm": Entries(_sound_alarm, ("w",)),
    "stats": Entries(_sound_statistics),
    "schedules": Entries(_sound_schedule),
    "fence": Entries(_sound_fence, ("exp",)),
    "lock": Entries(_sound_lock, ("rv",)),
}
"""Keys of a queue whose entries are judged here; hints are compared with the topology."""
SHARED_ENTRIES: Final = {"queues": Entries(_sound_queue)}
