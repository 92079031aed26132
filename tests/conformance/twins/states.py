"""Everything that a store holds of one queue, as plain values: read from memory's own fields, and from Redis' own keys.

Left out is what only one of them needs: counters that an audit of lists looks at (``took``, ``shifts``), sums that
nobody reads back (``done``, ``failed``, ``fin``), the newest time that a partition has seen.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, cast

import msgpack

from headrace.envelope import unpack_changes
from headrace.settings import Keep, PartitionLimits, QueueSettings, partition_limits
from headrace.stores.memory import MemoryStore
from headrace.stores.memory.data import StoredSchedules
from headrace.stores.memory.partition import Partition
from headrace.stores.protocols.registry import Beat
from headrace.stores.protocols.statistics import COUNTERS, Depth, Growth
from headrace.stores.redis.finished import jobs_of
from headrace.stores.redis.keys import Keys
from headrace.topology import PartitionRef, Topology
from tests.conformance.steps import QUEUE
from tests.conformance.twins.clock import ENDS

State = dict[str, Any]
NO_LIMITS: Final = partition_limits(QueueSettings(), 1)


def flat(state: State, path: str = "") -> dict[str, object]:
    """Return the values of a nested state by their paths, without empty ones: so that a difference is short to show."""
    found: dict[str, object] = {}
    for name, value in state.items():
        if isinstance(value, dict):
            found |= flat(value, f"{path}{name} ")
        elif value not in (None, "", b"", [], False):
            found[f"{path}{name}"] = value
    return found


def differences(memory: State, server: State) -> dict[str, tuple[object, object]]:
    """Return what is not the same: path -> value in memory, value on the server."""
    ours, theirs = flat(memory), flat(server)
    return {
        path: (ours.get(path), theirs.get(path)) for path in {**ours, **theirs} if ours.get(path) != theirs.get(path)
    }


def _facts(packed: bytes) -> object:
    """The changes of a job, as both write them: Lua has one kind of number, and no list differs from a tuple."""
    if not packed:
        return None
    facts = unpack_changes(packed)
    return json.loads(json.dumps(facts))


# ---- memory --------------------------------------------------------------------------------------------------------


def of_memory(store: MemoryStore) -> State:
    """Read a store in memory."""
    data = store._data
    now, hints, roster, stats = data.now(), data.queue(QUEUE), data.roster(QUEUE), data.stats.get(QUEUE)
    topology, grave = data.topologies.get(QUEUE), data.grave(QUEUE)
    roster.forget_old(now)
    return {
        "topology": topology.to_json() if topology else None,
        "grave": grave and grave.to_json(),
        "hot": {ref.label: at for ref, at in hints.hot.items()} | ({"@": -1} if hints.rearm else {}),
        "due": {ref.label: at for ref, at in hints.due.items()},
        "alarm": (hints.alarm_worker, hints.alarm_at) if hints.alarm_worker else None,
        "parked": {ref.label: at for ref, at in hints.parked.items()},
        "workers": dict(roster.heard),
        "gone": dict(roster.gone),
        "about": {worker: tuple(beat) for worker, beat in roster.about.items()},
        "stopping": {worker: till for worker, till in roster.stopping.items() if till > now},
        "stats": {
            "at": stats.measured_at,
            "epoch": stats.epoch,
            "depths": dict(stats.depths),
            "seen": {number: tuple(growth) for number, growth in stats.seen.items()},
            "counters": {name: stats.counters[name] for name in COUNTERS},
            "scaling": stats.scaling,
        }
        if stats
        else None,
        "schedules": _memory_schedules(data.schedules.get(QUEUE)),
        "wakes": [queue for _, queue in data.wakes._entries],
        "queues": sorted(data.topologies),
        "marker": data.marker,
        **{ref.label: _memory_partition(partition, now) for ref, partition in data.partitions.items()},
        **{
            ref.label: {"state": "tombstone", "incarnation": tombstone.incarnation}
            for ref, tombstone in data.tombstones.items()
            if ref not in data.partitions and data.gone(ref) == "tombstone"
        },
    }


def _memory_schedules(stored: StoredSchedules | None) -> State:
    if stored is None:
        return {}
    marks = {name: tuple(mark) for name, mark in stored.marks.items()}
    return {"marks": marks, "leader": (stored.epoch, stored.nonce) if stored.epoch else None}


def _memory_partition(partition: Partition, now: int) -> State:
    limiter, room, moving = partition._limiter, partition._room, partition._moving
    partition.finished._expire(now)
    return {
        "state": partition.state,
        "incarnation": partition.incarnation,
        "epoch": partition.epoch,
        "partitions": partition.partitions,
        "limits": limiter.limits,
        "bucket": None if limiter._at is None else (round(limiter._tokens, 6), limiter._at),
        "fence": partition._fence and (partition._fence.epoch, partition._fence.nonce),
        "room": (room._worker, room._till) if room._worker else None,
        "successor": partition.successor and partition.successor.to_json(),
        "marked": partition._marked_at,
        "asleep": partition.asleep,
        "counters": tuple(partition.growth),
        "fencing token": partition._fencing_token,
        "ready": [list(partition._lanes._lanes[lane]) for lane in (b"0", b"1", b"2")],
        "suspects": list(partition._suspects),
        "alone": list(partition._alone),
        "scheduled": {key: at for at, key in partition._scheduled},
        "retry": {key: at for at, key in partition._retry},
        "leased": {key: tuple(lease) for key, lease in partition._leases._leases.items()},
        "parked": sorted((kind, key) for kind, keys in partition._parked._types.items() for key in keys),
        "jobs": dict(partition._jobs),
        "changes": {stored_id: _facts(changes.packed()) for stored_id, changes in partition._changes.items()},
        "nonces": partition._nonces.known(now),
        "applied": dict(partition._applied),
        "dead": {
            each.letter: (each.died_at, each.record, _facts(each.changes)) for each in partition.dead.page(None, 10**6)
        },
        "finished": [tuple(entry.batch.jobs) for entry in partition.finished._entries],
        "moving": {
            stored_id: (move.key, move.to, move.place, move.at, move.type) for stored_id, move in moving.items()
        },
        "arrived": {stored_id: source.label for stored_id, source in partition._adopted.items()},
    }


# ---- Redis ---------------------------------------------------------------------------------------------------------

HASHES: Final = {"meta", "lease", "jobs", "mut", "moving", "arrived", "letters", "alarm", "about", "stats", "schedules"}
LISTS: Final = {"r0", "r1", "r2", "suspects", "alone"}
STREAMS: Final = {"done", "wakes"}
TEXTS: Final = {"topology", "grave", "marker"}


def of_redis(client: Any, prefix: str = "twins") -> State:
    """Read a server on which nothing else is."""
    keys, now_key = Keys(prefix), b"twins:clock"
    names = [name for name in client.keys("*") if name not in (now_key, ENDS)]
    read = client.pipeline(transaction=False)
    for name in names:
        _reader(name.rpartition(b":")[2].decode(), read)(name)
    values = dict(zip(names, read.execute(), strict=True))
    now = int(client.get(now_key))
    queue: dict[str, Any] = {}
    partitions: dict[PartitionRef, dict[str, Any]] = {}
    wakes: list[str] = []
    queues: list[str] = []
    marker: str | None = None
    for name, value in values.items():
        owner, part = keys.whose(QUEUE, name), name.rpartition(b":")[2].decode()
        if isinstance(owner, PartitionRef):
            partitions.setdefault(owner, {})[part] = value
        elif name == keys.shared("queues"):
            queues = [member.decode() for member, _ in value]
        elif name == keys.shared("marker"):
            marker = value.decode()
        elif name == keys.shared("wakes"):
            wakes = [fields[b"q"].decode() for _, fields in value]
        else:
            assert owner, f"a foreign key: {name!r}"
            queue[part] = value
    hot, due, parked, workers, gone, stopping = (
        {member.decode(): int(at) for member, at in queue.get(name, [])}
        for name in ("hot", "due", "parked", "workers", "gone", "stopping")
    )
    alarm, grave = queue.get("alarm"), queue.get("grave")
    return {
        "topology": queue["topology"].decode() if "topology" in queue else None,
        "grave": grave and grave.decode(),
        "hot": hot,
        "due": due,
        "alarm": alarm and (alarm[b"w"].decode(), int(alarm[b"t"])),
        "parked": parked,
        "workers": workers,
        "gone": gone,
        "about": {
            worker.decode(): tuple(Beat(*msgpack.unpackb(said))) for worker, said in queue.get("about", {}).items()
        },
        "stopping": {worker: till for worker, till in stopping.items() if till > now},
        "stats": _stats(queue["stats"]) if "stats" in queue else None,
        "schedules": _redis_schedules(queue.get("schedules", {})),
        "wakes": wakes,
        "queues": queues,
        "marker": marker,
        **{ref.label: _redis_partition(found) for ref, found in partitions.items()},
    }


def _reader(part: str, read: Any) -> Callable[[bytes], object]:
    """How the whole of such a key is read."""
    if part in HASHES:
        return cast(Callable[[bytes], object], read.hgetall)
    if part in LISTS:
        return lambda name: read.lrange(name, 0, -1)
    if part in STREAMS:
        return cast(Callable[[bytes], object], read.xrange)
    if part in TEXTS:
        return cast(Callable[[bytes], object], read.get)
    return lambda name: read.zrange(name, 0, -1, withscores=True)


def _stats(fields: Mapping[bytes, bytes]) -> State:
    stored = {name.decode(): value for name, value in fields.items()}
    depths = json.loads(stored.get("depth", b"{}"))
    seen = msgpack.unpackb(stored["seen"], strict_map_key=False) if "seen" in stored else {}
    return {
        "at": int(stored.get("at", 0)),
        "epoch": depths.get("epoch", 0),
        "depths": {
            int(number): Depth(**{**depth, "due_within": tuple(depth["due_within"])})
            for number, depth in depths.get("versions", {}).items()
        },
        "seen": {int(number): tuple(map(int, growth)) for number, growth in dict(seen).items()},
        "counters": {name: int(stored.get(name, 0)) for name in COUNTERS},
        "scaling": stored.get("scaling", b""),
    }


def _redis_schedules(fields: Mapping[bytes, bytes]) -> State:
    stored = {name.decode(): value.decode() for name, value in fields.items()}
    epoch, nonce = stored.pop(":e", ""), stored.pop(":n", "")
    marks = {name: (int(mark.partition(" ")[0]), mark.partition(" ")[2]) for name, mark in stored.items()}
    return {"marks": marks, "leader": (int(epoch), nonce) if epoch else None}


def _limits(meta: Mapping[str, bytes]) -> PartitionLimits:
    if "hold" not in meta:
        return NO_LIMITS
    rate, cap, length, dead, keep = (meta[name].decode() or None for name in ("rate", "cap", "len", "deadmax", "keep"))
    return PartitionLimits(
        meta["hold"] == b"1",
        meta["shut"] == b"1",
        None if rate is None else float(rate),
        None if cap is None else int(cap),
        None if length is None else int(length),
        int(meta["crash"]),
        None if dead is None else int(dead),
        int(meta["hist"]),
        None if keep is None else Keep(*map(int, keep.split(":"))),
        meta["only"] == b"1",
    )


def _redis_partition(found: Mapping[str, Any]) -> State:
    meta = {name.decode(): value for name, value in found["meta"].items()}
    numbers = {name: int(float(meta.get(name, 0))) for name in ("e", "n", "i", "fe", "ft", "roomt", "marked")}
    if meta["s"] == b"T":
        assert found.keys() == {"meta"}, f"a tombstone with {found.keys()}"
        return {"state": "tombstone", "incarnation": numbers["i"] or 1}
    tokens = dict(found.get("lease", {}))
    leased = {key: (int(at), tokens.pop(key[1:])) for key, at in found.get("leased", [])}
    assert not tokens, "leases without a leased job"
    letters = dict(found.get("letters", {}))
    dead = {letter: (int(at), *_letter(letters.pop(letter))) for letter, at in found.get("dead", [])}
    assert not letters, "letters without a time"
    succ = meta.get("succ")
    return {
        "state": {b"A": "active", b"D": "draining", b"C": "closed"}[meta["s"]],
        "incarnation": numbers["i"] or 1,
        "epoch": numbers["e"],
        "partitions": numbers["n"] or 1,
        "limits": _limits(meta),
        "bucket": (round(float(meta["tokens"]), 6), int(meta["at"])) if "tokens" in meta else None,
        "fence": (numbers["fe"], meta["fn"].decode()) if "fe" in meta else None,
        "room": (meta["room"].decode(), numbers["roomt"]) if "room" in meta else None,
        "successor": Topology.from_json(QUEUE, succ).to_json() if succ else None,
        "marked": numbers["marked"] or None,
        "asleep": "asleep" in meta,
        "counters": tuple(Growth(*(int(meta.get(name, 0)) for name in ("enq", "rdy", "exp", "drop")))),
        "fencing token": numbers["ft"],
        "ready": [[b"%d" % lane + stored_id for stored_id in found.get(f"r{lane}", [])] for lane in range(3)],
        "suspects": found.get("suspects", []),
        "alone": found.get("alone", []),
        "scheduled": _times(found.get("scheduled", [])),
        "retry": _times(found.get("retry", [])),
        "leased": {key: (token, at) for key, (at, token) in leased.items()},
        "parked": sorted(_parked(member) for member, _ in found.get("park", [])),
        "jobs": dict(found.get("jobs", {})),
        "changes": {stored_id: _facts(packed) for stored_id, packed in found.get("mut", {}).items()},
        "nonces": _times(found.get("seen", [])),
        "applied": {name.removeprefix("once:"): int(at) for name, at in meta.items() if name.startswith("once:")},
        "dead": dead,
        "finished": [_finished(fields) for _, fields in found.get("done", [])],
        "moving": {stored_id: _moving(stored_id, packed) for stored_id, packed in found.get("moving", {}).items()},
        "arrived": {stored_id: label.decode() for stored_id, label in found.get("arrived", {}).items()},
    }


def _times(members: Iterable[tuple[bytes, float]]) -> dict[bytes, int]:
    return {member: int(at) for member, at in members}


def _letter(packed: bytes) -> tuple[bytes, object]:
    record, changes = msgpack.unpackb(packed, raw=True)
    return record, _facts(changes)


def _parked(member: bytes) -> tuple[str, bytes]:
    kind, _, key = member.partition(b"\0")
    return kind.decode(), key


def _finished(fields: Mapping[bytes, bytes]) -> tuple[object, ...]:
    jobs = jobs_of(fields[b"d"], int(fields[b"t"]), fields[b"w"].decode())
    assert len(jobs) == int(fields[b"n"])
    return jobs


def _moving(stored_id: bytes, packed: bytes) -> tuple[object, ...]:
    to, place, at, kind, lane = msgpack.unpackb(packed)
    return lane.encode() + stored_id, to, place, int(at), kind
