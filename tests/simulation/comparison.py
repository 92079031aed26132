"""How values of the model and of the real stores are compared in a replay."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

from headrace import lifecycle
from headrace.ids import encode_id
from headrace.settings import QueueSettings, partition_limits
from headrace.stores import base
from headrace.stores.memory import MemoryStore
from headrace.stores.redis import RedisStore
from headrace.topology import Grave as StoredGrave
from headrace.topology import PartitionRef
from headrace.topology import Topology as StoredTopology
from headrace.topology import Version as StoredVersion
from tests.simulation.values import Call, Grave, Leased, Moved, Partition, Ref, Reply, Topology
from tests.simulation.world import Model

QUEUE = "emails"


@dataclass(frozen=True, slots=True)
class Request:
    """A call that a lifecycle coroutine wants to make, and where it waits for the reply."""

    method: str
    arguments: tuple[Any, ...]
    options: dict[str, Any]
    reply: asyncio.Future[Any]


def settings(number: int) -> QueueSettings:
    """Return settings that are told apart by their number."""
    return QueueSettings.model_validate({"crash_limit": 10 + number} if number else {})


def stored(topology: Topology) -> StoredTopology:
    """Return the real topology that a topology of the model stands for."""
    versions = {
        v.number: StoredVersion(v.partitions, cast(Any, v.state))  # the model's states are plain text
        for v in topology.versions
    }
    return StoredTopology(
        QUEUE,
        topology.epoch,
        topology.active,
        topology.highest,
        versions,
        {},
        settings(topology.settings),
        topology.incarnation,
        topology.deleting,
    )


class Facts(NamedTuple):
    """What a partition knows beside its jobs, as far as its state gives it a meaning."""

    incarnation: int
    term: int = 0
    successor: StoredTopology | None = None
    epoch: int = 0
    crash_limit: int = 0
    partitions: int = 0
    asleep: bool = False
    of: str = ""


def expected_facts(partition: Partition, *, sleeps: bool) -> Facts:
    """Return what a partition of the model knows; whose settings it has only where that is told apart."""
    facts = Facts(partition.incarnation)
    if partition.state == "tombstone":
        return facts
    successor = stored(partition.successor) if partition.successor else None
    facts = facts._replace(term=partition.term, successor=successor)
    if partition.state == "closed":
        return facts
    limits = partition_limits(settings(partition.settings), 1)
    of = stored(partition.of).stamp if partition.of else ""
    facts = facts._replace(epoch=partition.epoch, crash_limit=limits.crashes, asleep=sleeps and partition.asleep, of=of)
    return facts._replace(partitions=partition.partitions) if partition.state == "active" else facts


async def stored_facts(store: base.Store, ref: PartitionRef, state: str, *, sleeps: bool, stamped: bool) -> Facts:
    """Return what the partition of a store knows, which it has in that state: read without a step."""
    names = ("i", "fe", "e", "crash", "n", "asleep")
    if isinstance(store, RedisStore):
        *meta, of = await store._client.command("HMGET", store._keys.partition(ref, "meta"), *names, "of")
        of = (of or b"").decode()
        incarnation, term, epoch, crash, partitions, asleep = (int(float(each or 0)) for each in meta)
    else:
        assert isinstance(store, MemoryStore)
        if (found := store._data.partitions.get(ref)) is None:
            return Facts(store._data.tombstones[ref].incarnation)
        fence, limits = found._fence, found._limiter.limits
        incarnation, epoch, partitions, asleep = found.incarnation, found.epoch, found.partitions, found.asleep
        of = found.of
        term, crash = fence.epoch if fence else 0, limits.crashes
    facts = Facts(incarnation or 1)
    if state == "tombstone":
        return facts
    facts = facts._replace(term=term, successor=await store.successor(ref))
    if state == "closed":
        return facts
    unsaid = partition_limits(settings(0), 1).crashes
    asleep = sleeps and bool(asleep)
    facts = facts._replace(epoch=epoch, crash_limit=crash or unsaid, asleep=asleep, of=of if stamped else "")
    return facts._replace(partitions=partitions) if state == "active" else facts


def key(job_id: str) -> bytes:
    return base.LANE + encode_id(job_id)


def topology_of(call: Call) -> StoredTopology:
    assert call.topology is not None
    return stored(call.topology)


def ref_of(ref: Ref | None) -> PartitionRef:
    return PartitionRef(QUEUE, *(ref or (0, 0)))


def nonce_of(call: Call) -> bytes:
    assert call.nonce is not None
    return b"%d/%d" % call.nonce


def worker_of(call: Call) -> tuple[str, int]:
    assert call.token is not None
    return f"w{call.token.worker}", call.token.seq


def comparable(call: Call, reply: Reply, model: Model) -> object:
    if isinstance(reply, Topology):
        return stored(reply)
    if isinstance(reply, Moved):
        return base.Moved(cast(Any, reply.state), stored(reply.successor) if reply.successor else None)
    if isinstance(reply, Leased):
        return sorted(key(model.machine.ids[uid]) for uid in reply.uids), reply.gone
    if reply == "woke":
        return call.method == "probe" or "accepted"
    return reply


MOVES = frozenset(
    (
        "set_aside", "adopt", "retarget", "let_go", "forget_arrived", "arrivals", "still_aside",
        "dead_letters", "adopt_dead", "remove_dead",
    )
)  # fmt: skip


def moved(request: Request, reply: Any) -> object:
    """Return a store's reply to a step that moves jobs or dead letters, in a form to compare."""
    match request.method:
        case "set_aside":
            return sorted((job.stored_id, job.to) for job in reply)
        case "adopt":
            return sorted(job.stored_id for job, found in zip(request.arguments[-1], reply, strict=True) if found)
        case "still_aside":
            return sorted(stored_id for stored_id, found in zip(request.arguments[-1], reply, strict=True) if found)
        case "arrivals":
            return sorted(reply)
        case "dead_letters":
            return sorted(letter.stored_id for letter in reply)
        case "adopt_dead":
            return reply
    return None


def as_stored(read: Topology | Grave | None) -> StoredTopology | StoredGrave | None:
    """Return the real value of what is read of a queue: its topology, its grave, or nothing."""
    if isinstance(read, Grave):
        return StoredGrave(read.epoch, read.incarnation)
    return stored(read) if read else None


def essence(arguments: tuple[Any, ...]) -> tuple[object, ...]:
    """Return what matters of a call's arguments: not the queue, nor the leader's fence; of jobs only their ids."""
    return tuple(
        sorted(map(_stored_id, argument)) if isinstance(argument, list) else argument
        for argument in arguments
        if argument != QUEUE and not isinstance(argument, base.Fence)
    )


def _stored_id(moved: base.Aside | base.DeadLetter | PartitionRef | bytes) -> PartitionRef | bytes:
    if isinstance(moved, PartitionRef):
        return moved
    if isinstance(moved, bytes):
        return moved.rpartition(b"@")[0] or moved  # of a letter, or itself
    return moved.stored_id


def expected_call(call: Call, ids: list[bytes]) -> tuple[object, ...]:
    match call.method:
        case "set_aside":
            return (call.method, ref_of(call.ref), call.number, base.MAX_ASIDE)
        case "adopt":
            return (call.method, ref_of(call.ref), call.number, ref_of(call.source), ids)
        case "retarget":
            return (call.method, ref_of(call.ref), ids, call.number)
        case "forget_arrived":
            return (call.method, ref_of(call.ref), ref_of(call.source), ids)
        case "adopt_dead":
            return (call.method, ref_of(call.ref), ids, call.incarnation)
        case "let_go" | "still_aside" | "remove_dead" | "withdraw":
            return (call.method, ref_of(call.ref), ids)
        case "arrivals":
            return (call.method, ref_of(call.ref), base.MAX_ASIDE)
        case "read_topology":
            return (call.method,)
        case "write_topology":
            return (call.method, as_stored(call.read), topology_of(call))
        case "install":
            return (call.method, ref_of(call.ref), topology_of(call), call.number)
        case "settle" | "mark":
            return (call.method, ref_of(call.ref), topology_of(call))
        case "counts":
            return (call.method, [ref_of(call.ref)])
        case "bury_queue":
            return (call.method, topology_of(call))
        case "read_grave":
            return (call.method,)
        case "remove" | "delete_partition":
            return (call.method, ref_of(call.ref), call.incarnation)
        case _:
            return (call.method, ref_of(call.ref))


def at_time(counts: base.Counts, *, clients_may_retry: bool) -> base.Counts:
    """Return the counts as read when the clients' retry time is over, or not yet."""
    if counts.marked_at is None:
        return counts
    return counts._replace(now=counts.marked_at + (0 if clients_may_retry else lifecycle.CLIENT_RETRY_MS))
