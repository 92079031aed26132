"""Reads one queue from Redis, as far as the connection allows."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Hashable, Mapping
from dataclasses import replace

from headrace.errors import DataDamaged, HeadraceError, TopologyUnreadable
from headrace.leadership.overview import Leader, read_leader
from headrace.stores.base import Counts, Store
from headrace.topology import PartitionRef, Topology
from headrace_operator.kubernetes.client import ApiError, Kube, queues
from headrace_operator.observed import Backend, ConnectionProblem, HeldJob, QueueObject, QueueVersionObject, Spot
from headrace_operator.planning.stuck import stuck
from headrace_operator.planning.versions import ENDED
from headrace_operator.reasons import Finding, Reason
from headrace_operator.redis.connection import Connected, Connections, problem
from headrace_operator.redis.held_jobs import held_jobs

REDIS_SECONDS = 15.0
"""Longest time that reading one queue from Redis may take."""
PARKED_PARTITIONS = 32
"""Partitions, of the oldest versions first, whose parked jobs are asked for by type."""


class RedisView:
    """Connects as a Queue says, and reads its queue. ``kube``: to look an owner up."""

    def __init__(self, kube: Kube, connections: Connections) -> None:
        self._kube = kube
        self._connections = connections

    async def read(
        self, queue: QueueObject, versions: tuple[QueueVersionObject, ...], owner: Mapping[str, str]
    ) -> tuple[Backend | ConnectionProblem, Store | None]:
        """Return what Redis holds of the queue, and the open store; or why it cannot be read."""
        if queue.spec is None:
            return ConnectionProblem(Finding(Reason.INVALID_SPEC, queue.problem), stalled=True), None
        connected = await self._connections.connect(queue.namespace, queue.uid, queue.spec)
        if isinstance(connected, ConnectionProblem):
            return connected, None
        try:
            async with asyncio.timeout(REDIS_SECONDS):
                backend = await self._read(connected, queue, versions, owner)
        except TimeoutError:
            text = f"redis {connected.endpoint} did not answer within {REDIS_SECONDS:g} s"
            silent = ConnectionProblem(Finding(Reason.UNREACHABLE, text))
            self._connections.failed(connected.store, silent)
            return silent, None
        except TopologyUnreadable as error:
            return ConnectionProblem(Finding(Reason.TOPOLOGY_UNREADABLE, str(error)), stalled=True), None
        except DataDamaged as error:  # of this queue: the connection, which other Queues share, is sound
            return ConnectionProblem(Finding(Reason.DATA_DAMAGED, str(error))), None
        except HeadraceError as error:
            found = problem(error)
            self._connections.failed(connected.store, found)
            return found, None
        return backend, connected.store

    async def glance(self, spot: Spot) -> Hashable:
        """Return the first part of the fingerprint that `read` would lead to; None if there may be more to say."""
        connected = self._connections.again(spot.uid)
        if connected is None:
            return None
        try:
            async with asyncio.timeout(REDIS_SECONDS):
                return _at_a_glance(connected.store, *await _first(connected.store, spot.queue))
        except (TimeoutError, HeadraceError):
            return None  # reading it will say why

    async def look(self, spot: Spot) -> tuple[Hashable, Hashable] | None:
        """Return the fingerprint that `read` would lead to, both parts; None if there may be more to say."""
        connected = self._connections.again(spot.uid)
        if connected is None:
            return None
        try:
            async with asyncio.timeout(REDIS_SECONDS):
                marker, topology = await _first(connected.store, spot.queue)
                if topology is not None and topology.owner.get("uid") != spot.uid:
                    return None  # whether that one exists, only the API server can tell
                backend = await self._facts(connected, spot.queue, marker, topology, spot.partitions)
        except (TimeoutError, HeadraceError):
            return None
        return fingerprint_of(backend, connected.store)

    async def _read(
        self,
        connected: Connected,
        queue: QueueObject,
        versions: tuple[QueueVersionObject, ...],
        owner: Mapping[str, str],
    ) -> Backend:
        marker, topology = await _first(connected.store, queue.queue_name)
        wanted = partitions_worth_counting(queue, versions, topology)
        backend = await self._facts(connected, queue.queue_name, marker, topology, wanted)
        if topology is not None and dict(topology.owner) != dict(owner):
            return replace(backend, owner_alive=await self._alive(topology.owner, owner))
        return backend

    async def _facts(
        self,
        connected: Connected,
        queue: str,
        marker: str | None,
        topology: Topology | None,
        partitions: Mapping[int, int],
    ) -> Backend:
        # In one round trip, since that is most of what a look costs.
        counts, leader = await asyncio.gather(
            _counts(connected.store, queue, partitions), _leader(connected.store, queue, topology)
        )
        parked, held = await asyncio.gather(
            _parked(connected.store, queue, counts), _held(connected.store, topology, counts)
        )
        return Backend(
            connected.endpoint,
            marker,
            topology,
            counts,
            parked,
            secret=connected.secret,
            url=connected.url,
            instead_of=connected.instead_of,
            unsafe=await self._connections.unsafe(connected.store),
            leader=leader,
            held=held,
        )

    async def _alive(self, theirs: Mapping[str, str], ours: Mapping[str, str]) -> bool | None:
        """Whether the Queue that owns the topology exists; None if it cannot be looked up from here."""
        if theirs.get("cluster") != ours["cluster"] or not theirs.get("namespace") or not theirs.get("name"):
            return None
        try:
            body = await self._kube.find(f"{queues(theirs['namespace'])}/{theirs['name']}")
        except ApiError as error:
            if error.status == 403:
                return None
            raise
        return body is not None and body["metadata"]["uid"] == theirs.get("uid")


def fingerprint_of(backend: Backend, store: Store | None) -> tuple[Hashable, Hashable]:
    """Return two values, equal for readings that say the same, the time apart: at a glance, and the rest."""
    rest = _digest(
        (backend.endpoint, backend.secret, backend.url, backend.unsafe, backend.owner_alive),
        None if backend.instead_of is None else backend.instead_of.finding,
        backend.leader,
        # All but the time of the reading.
        tuple(count._replace(now=0) for counts in backend.counts.values() for count in counts.values()),
        tuple((version, *types.items()) for version, types in backend.parked.items()),
        tuple(backend.held.items()),
    )
    return _at_a_glance(store, backend.marker, backend.topology), rest


def _at_a_glance(store: Store | None, marker: str | None, topology: Topology | None) -> Hashable:
    told = None if topology is None else (topology.stamp, topology.summary())
    return _digest(id(store), marker, told)  # through another connection all that hold this one have to hear of it


def _digest(*values: object) -> bytes:
    """Return a few bytes in place of plain values: a thousand Queues have many partitions."""
    return hashlib.blake2b(repr(values).encode(), digest_size=16).digest()


def partitions_worth_counting(
    queue: QueueObject, versions: tuple[QueueVersionObject, ...], topology: Topology | None
) -> dict[int, int]:
    """Return versions with their partitions: those of the topology, those that should be in it, and those to come."""
    wanted = {} if topology is None else {n: version.partitions for n, version in topology.versions.items()}
    for version in versions:
        coming = queue.spec is not None and version.version == queue.spec.version
        if version.ownership == "ours" and (coming or version.status.phase not in ENDED):
            wanted[version.version] = max(version.spec.partitions, wanted.get(version.version, 0))
    status = queue.status
    if queue.deleted_at is not None:
        # The QueueVersions may have gone first.
        for told in status.versions:
            wanted.setdefault(told.version, told.partitions)
        if queue.spec is not None:
            wanted.setdefault(queue.spec.version, queue.spec.partitions)
    if topology is None and status.active_version is not None and status.active_partitions is not None:
        wanted.setdefault(status.active_version, status.active_partitions)
    return wanted


async def _first(store: Store, queue: str) -> tuple[str | None, Topology | None]:
    """Return mark and topology, in one round trip."""
    marker, topology = await asyncio.gather(store.read_marker(), store.read_topology(queue))
    return marker, topology


async def _leader(store: Store, queue: str, topology: Topology | None) -> Leader | None:
    return None if topology is None else await read_leader(store, queue)


async def _counts(store: Store, queue: str, wanted: Mapping[int, int]) -> dict[int, dict[int, Counts]]:
    refs = [
        PartitionRef(queue, version, number) for version, partitions in wanted.items() for number in range(partitions)
    ]
    counts: dict[int, dict[int, Counts]] = {}
    if refs:
        for ref, count in zip(refs, await store.counts(refs), strict=True):
            counts.setdefault(ref.version, {})[ref.partition] = count
    return counts


async def _parked(store: Store, queue: str, counts: Mapping[int, Mapping[int, Counts]]) -> dict[int, dict[str, int]]:
    refs = [
        PartitionRef(queue, version, number)
        for version, partitions in sorted(counts.items())
        for number, count in partitions.items()
        if count.parked
    ][:PARKED_PARTITIONS]
    parked: dict[int, dict[str, int]] = {}
    for ref, types in zip(refs, await asyncio.gather(*(store.parked(ref) for ref in refs)), strict=True):
        of_version = parked.setdefault(ref.version, {})
        for kind, jobs in types.items():
            of_version[kind] = of_version.get(kind, 0) + jobs
    return parked


async def _held(
    store: Store, topology: Topology | None, counts: Mapping[int, Mapping[int, Counts]]
) -> dict[int, tuple[HeldJob, ...]]:
    """Return some jobs of each draining version that is stuck. Such a version is looked at seldom."""
    held: dict[int, tuple[HeldJob, ...]] = {}
    if topology is None:
        return held
    for version in topology.older:
        of_version = counts.get(version, {})
        if (cause := stuck(of_version, topology.settings)) is not None:
            held[version] = await held_jobs(store, topology.queue, version, of_version, cause)
    return held
