"""Dead letters as JSON: what an export writes, and what an import makes letters of again.

A letter is named by the id of its job and the time of its death, so that the same line again is the same letter.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from headrace.dead_letters import DeadJob
from headrace.envelope import encode_body, pack_changes
from headrace.errors import InvalidInput, TopologyConflict, UnknownQueue
from headrace.ids import check_id, decode_id, encode_id, partition_of
from headrace.job_fields import priority_number
from headrace.retry import RetryPolicy
from headrace.stores.base import MAX_ASKED, MAX_STEP_BYTES, DeadLetter, Store
from headrace.topology import PartitionRef, Topology

_TIMES = struct.Struct(">QQ")
_TRIES = 5
_REMEDY = "import lines as `headrace dead export` writes them"


class Imported(NamedTuple):
    """What became of letters: added; there already; kept out, since a job of their id is live."""

    added: int
    existing: int
    live: int


def line_of(dead: DeadJob) -> dict[str, Any]:
    """Return a dead letter as JSON can hold it. Bytes are hexadecimal, and so are letters that cannot be read."""
    data: dict[str, Any] = {
        "id": dead.id,
        "queue": dead.ref.queue,
        "version": dead.ref.version,
        "partition": dead.ref.partition,
        "died_at": _text(dead.letter.died_at),
        "error": dead.error,
    }
    if dead.job is None:
        stored = {"record": dead.letter.record, "changes": dead.letter.changes, "stored_id": dead.letter.stored_id}
        return data | {name: part.hex() for name, part in stored.items()}
    job, payload = dead.job, dead.job.payload
    return data | {
        "type": job.type,
        "runs": job.attempt,
        "crashes": job.crashes,
        "payload": payload.hex() if isinstance(payload, bytes) else payload,
        "payload_is_hex": isinstance(payload, bytes),
        "headers": job.headers,
        "history": [entry._asdict() for entry in job.history],
        "created_at": _text(job.created_at),
        "run_at": _text(job.run_at),
        "expiries": job.expiries,
        "max_retries": job.max_retries,
        "timeout_ms": job.timeout_ms,
        "priority": job.priority,
        "retry": None if job.retry is None else job.retry.model_dump(),
    }


def letter_of(line: Any) -> DeadLetter:
    """Return the dead letter that `line_of` has written, wherever it was. Raises InvalidInput."""
    if not isinstance(line, dict) or "id" not in line or "died_at" not in line:
        raise InvalidInput("line", "is no dead letter", _REMEDY)
    died_at = _ms("died_at", line)
    try:
        if "record" in line:
            stored_id, record, changes = (bytes.fromhex(line[name]) for name in ("stored_id", "record", "changes"))
        else:
            stored_id, record, changes = encode_id(check_id(line["id"])), _record(line), _changes(line)
    except InvalidInput:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        told = f"field {error} is missing" if isinstance(error, KeyError) else f"a field cannot be read ({error})"
        raise InvalidInput("line", told, _REMEDY) from None
    return DeadLetter(stored_id + b"@%d" % died_at, died_at, record, changes)


def _record(line: dict[str, Any]) -> bytes:
    retry = line.get("retry")
    body = encode_body(
        line["type"],
        bytes.fromhex(line["payload"]) if line.get("payload_is_hex") else line["payload"],
        headers=line.get("headers") or None,
        max_retries=line.get("max_retries"),
        timeout_ms=line.get("timeout_ms"),
        priority=priority_number(line.get("priority")),
        retry=None if retry is None else RetryPolicy(**retry),
    )
    times = [_ms(name, line) if name in line else _ms("died_at", line) for name in ("created_at", "run_at")]
    return _TIMES.pack(*times) + body


def _changes(line: dict[str, Any]) -> bytes:
    history = [
        [str(entry["status"]), int(entry["at"]), str(entry["worker"]), str(entry["error"])]
        for entry in line.get("history", [])
    ]
    runs, expiries, crashes = (int(line.get(name, 0)) for name in ("runs", "expiries", "crashes"))
    return pack_changes([runs, expiries, str(line.get("error", "")), len(history), crashes, 0], history)


async def import_letters(store: Store, queue: str, letters: Iterable[DeadLetter], *, dry_run: bool = False) -> Imported:
    """Put dead letters into the active version of a queue; those that are there already stay as they are.

    A letter whose id is live is kept out, for that may be the same job, put back. ``dry_run``: count only. What is
    beyond the queue's ``dead_count`` is dropped, oldest first. Raises UnknownQueue, or TopologyConflict if versions
    change all the time; what came before has been added then, and the same again adds the rest.
    """
    added = existing = live = 0
    for some in _chunks(letters):
        for tries_left in reversed(range(_TRIES)):
            topology = await store.read_topology(queue)
            if topology is None:
                raise UnknownQueue(queue)
            wanted, known, running = await _sorted_out(store, topology, some)
            if dry_run or await _adopt(store, topology, wanted):
                break
            if not tries_left:
                raise TopologyConflict(queue, "its versions change while letters are imported; import again", topology)
        added, existing, live = added + len(wanted), existing + known, live + running
    return Imported(added, existing, live)


def _chunks(letters: Iterable[DeadLetter]) -> Iterable[list[DeadLetter]]:
    """Yield letters, each once, in groups that one step may carry even if all go to one partition."""
    group: dict[bytes, DeadLetter] = {}
    size = 0
    for letter in letters:
        size += len(letter.record) + len(letter.changes)
        if group and (len(group) == MAX_ASKED or size > MAX_STEP_BYTES):
            yield list(group.values())
            group, size = {}, len(letter.record) + len(letter.changes)
        group[letter.letter] = letter
    if group:
        yield list(group.values())


async def _sorted_out(
    store: Store, topology: Topology, letters: Sequence[DeadLetter]
) -> tuple[list[DeadLetter], int, int]:
    """Return the letters that are to be added, the number of those that exist, and of those whose id is live."""
    wanted = list(letters)
    existing = live = 0
    for version in topology.versions:
        groups = _by_partition(topology, version, wanted)
        wanted = []
        for ref, group in groups.items():
            found = await store.statuses(ref, [letter.stored_id for letter in group])
            for letter, status in zip(group, found.live, strict=True):
                if status is not None:
                    live += 1
                elif await _exists(store, ref, letter):
                    existing += 1
                else:
                    wanted.append(letter)
    return wanted, existing, live


async def _exists(store: Store, ref: PartitionRef, letter: DeadLetter) -> bool:
    before = letter._replace(letter=letter.stored_id + b"@")  # no letter has that name, and it comes just before
    return any(each.letter == letter.letter for each in await store.dead_letters(ref, before, 2))


async def _adopt(store: Store, topology: Topology, letters: Sequence[DeadLetter]) -> bool:
    """Add letters to the active version; False if it is active no more."""
    for ref, group in _by_partition(topology, topology.active, letters).items():
        if not await store.adopt_dead(ref, group, topology.incarnation):
            return False
    return True


def _by_partition(
    topology: Topology, version: int, letters: Iterable[DeadLetter]
) -> dict[PartitionRef, list[DeadLetter]]:
    groups: dict[PartitionRef, list[DeadLetter]] = {}
    for letter in letters:
        try:
            number = partition_of(decode_id(letter.stored_id), topology.versions[version].partitions)
        except ValueError:
            raise InvalidInput("line", f"has the id {letter.stored_id.hex()}, which is none", _REMEDY) from None
        groups.setdefault(PartitionRef(topology.queue, version, number), []).append(letter)
    return groups


def _text(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds")


def _ms(field: str, line: dict[str, Any]) -> int:
    value = line[field]
    try:
        moment = datetime.fromisoformat(value)
        if moment.tzinfo is None:
            raise ValueError
        return round(moment.timestamp() * 1000)
    except (TypeError, ValueError):
        raise InvalidInput(field, f"is {value!r}", "give a time such as 2030-01-31T12:00:00.000+00:00") from None
