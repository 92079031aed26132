"""RedisStore: the Store protocol on Redis, one script per step. See `headrace.stores.base` for what each step means."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import msgpack

from headrace.errors import InvalidInput, QueueFull, QueueHeld, StoreUnavailable
from headrace.settings import partition_limits
from headrace.stores.base import (
    MAX_UNPARK,
    TOMBSTONE_TTL_MS,
    Accepted,
    Claim,
    Claimed,
    Counts,
    DeadLetter,
    Failure,
    Moved,
    NewJob,
    PartitionState,
    Release,
    Settled,
    Unknown,
    check_batch,
    check_limit,
    check_page,
    no_worker_knows,
)
from headrace.stores.redis.client import Argument, RedisClient
from headrace.stores.redis.cluster import ClusterClient
from headrace.stores.redis.hints import ClusterHints, Outlook
from headrace.stores.redis.keys import Keys
from headrace.stores.redis.scripts import script
from headrace.stores.redis.urls import CLUSTER_SCHEMES
from headrace.topology import PartitionRef, Topology

_STATES: dict[bytes, PartitionState] = {
    b"absent": "absent",
    b"A": "active",
    b"D": "draining",
    b"C": "closed",
    b"T": "tombstone",
}


def _pack(flat: list[Any]) -> bytes:
    # cmsgpack knows only the old raw type for strings and bytes. An error's text may hold surrogates (file names).
    return bytes(msgpack.packb(flat, use_bin_type=False, unicode_errors="replace"))


def _limits(topology: Topology, partitions: int) -> tuple[Argument, ...]:
    """Return a partition's limits as the fields and values that lua/install.lua keeps in its meta."""
    limits = partition_limits(topology.settings, partitions)
    rate = "" if limits.rate is None else repr(limits.rate)
    in_flight = "" if limits.in_flight is None else limits.in_flight
    length = "" if limits.length is None else limits.length
    return ("hold", limits.hold, "rate", rate, "cap", in_flight, "len", length, "crash", limits.crashes)


class RedisStore:
    """A store on Redis or Valkey: one server, the primary that Sentinels name, or a Cluster, as the URL says.

    One event loop; use `clone` for another.
    """

    def __init__(self, url: str, *, prefix: str = "headrace") -> None:
        if not prefix or set(prefix) & set("{}: \n"):
            raise InvalidInput("prefix", f"{prefix!r} cannot be used", "use text without '{', '}', ':' and spaces")
        self._url = url
        self._prefix = prefix
        self._waits = 0
        self._client: RedisClient | ClusterClient
        self._hints: ClusterHints | None = None
        if url.partition("://")[0] in CLUSTER_SCHEMES:
            self._keys = Keys(prefix, hinted=False)
            self._client = ClusterClient(url)
            self._hints = ClusterHints(self._client, self._keys)
        else:
            self._keys = Keys(prefix)
            self._client = RedisClient(url)

    def __repr__(self) -> str:
        return f"RedisStore({self._client.server!r}, prefix={self._prefix!r})"

    def clone(self) -> RedisStore:
        """Return a store on the same data with connections of its own, for use in another event loop."""
        return RedisStore(self._url, prefix=self._prefix)

    async def close(self) -> None:
        """Close the connections. Idempotent."""
        await self._client.close()

    async def check(self) -> None:
        """Prove that the server answers and is new enough; raise StoreUnavailable or UnsupportedServer."""
        await self._client.check()

    @property
    def hints_may_be_lost(self) -> bool:
        """Whether a partition may be worth a claim with no hint: in a Cluster, if a client died at the wrong time."""
        return self._hints is not None

    async def _hint(self, ref: PartitionRef, *, ready: int = 0, due: int = -1) -> None:
        """Give the hints that the script could not give. They are hints: what the script did stands without them."""
        if self._hints is not None:
            with suppress(StoreUnavailable):
                await self._hints.give(ref, ready=ready, due=due)

    async def _run(self, name: str, ref: PartitionRef, *args: Argument) -> Any:
        return await self._client.run(script(name), self._keys.of_script(name, ref), args)

    # ---- topology -------------------------------------------------------------------------------------------------

    async def read_topology(self, queue: str) -> Topology | None:
        """Return the stored topology, None if the queue has none."""
        stored = await self._client.command("GET", self._keys.queue(queue, "topology"))
        return None if stored is None else Topology.from_json(queue, stored)

    async def write_topology(self, expected_epoch: int, topology: Topology) -> bool:
        """Store ``topology`` if the stored one has ``expected_epoch`` (0: there is none); False if it has not."""
        keys = self._keys.of_queue_script("write_topology", topology.queue)
        return bool(await self._client.run(script("write_topology"), keys, (expected_epoch, topology.to_json())))

    async def install(self, ref: PartitionRef, topology: Topology, partitions: int) -> PartitionState:
        """INSTALL: prepare a partition for ``topology``, which is about to be written. Returns the state before."""
        return await self._agree(ref, topology, partitions, "install", create=True)

    async def settle(self, ref: PartitionRef, topology: Topology) -> PartitionState:
        """Make a partition agree with ``topology``, which has been written. Returns the state before."""
        create = ref.version == topology.active
        return await self._agree(ref, topology, topology.versions[ref.version].partitions, "settle", create=create)

    async def _agree(
        self, ref: PartitionRef, topology: Topology, partitions: int, step: str, *, create: bool
    ) -> PartitionState:
        limits = _limits(topology, partitions)
        reply = await self._run("install", ref, topology.epoch, partitions, step, int(create), ref.label, *limits)
        await self._hint(ref, ready=reply[1])
        return _STATES[reply[0]]

    async def mark(self, ref: PartitionRef, topology: Topology) -> PartitionState:
        """MARK: a partition becomes draining, with ``topology`` as its successor. Returns the state after."""
        return _STATES[await self._run("mark", ref, topology.to_json())]

    async def close_partition(self, ref: PartitionRef) -> Counts:
        """CLOSE: a draining partition without live jobs becomes closed. Returns the counts, state afterwards."""
        return _counts(await self._run("close", ref))

    async def remove(self, ref: PartitionRef) -> bool:
        """Delete a closed (or absent) partition's keys and leave a tombstone."""
        removed = bool(await self._run("remove", ref, ref.label, TOMBSTONE_TTL_MS))
        if removed and self._hints is not None:
            with suppress(StoreUnavailable):
                await self._hints.forget(ref)
        return removed

    async def discard(self, ref: PartitionRef) -> bool:
        """Delete an empty active partition that never became part of a promoted version."""
        return bool(await self._run("discard", ref))

    async def counts(self, refs: Sequence[PartitionRef]) -> list[Counts]:
        """Return the counts of each partition, each read in one step."""
        counting = script("counts")
        replies = [self._client.run(counting, self._keys.of_script("counts", ref), ()) for ref in refs]
        # Gathered, so that no failure of a later one goes unread when an earlier one has failed.
        return [_counts(reply) for reply in await asyncio.gather(*replies)]

    # ---- producing ------------------------------------------------------------------------------------------------

    async def enqueue(
        self, ref: PartitionRef, partitions: int, nonce: bytes, jobs: Sequence[NewJob]
    ) -> Accepted | Moved:
        """Insert jobs into an active partition; the same nonce within 10 s is applied once."""
        check_batch(jobs)
        reply = await self._run(
            "enqueue", ref, ref.label, partitions, nonce, _pack([part for job in jobs for part in job])
        )
        if reply[0] == b"ok":
            await self._hint(ref, ready=reply[2], due=reply[3])
            return Accepted(frozenset(reply[1]))
        if reply[0] == b"full":
            raise QueueFull(ref.queue, ref.label, reply[1], reply[2])
        if reply[0] == b"held":
            raise QueueHeld(ref.queue)
        state: Any = "resized" if reply[1] == b"resized" else _STATES[reply[1]]
        return Moved(state, Topology.from_json(ref.queue, reply[2]) if reply[2] else None)

    async def probe(self, ref: PartitionRef, topology: Topology, jobs: Sequence[tuple[bytes, bytes]]) -> list[bool]:
        """PROBE: MARK the partition of an older version and tell for each (key, nonce) whether it is known there."""
        check_batch(jobs)
        packed = _pack([part for job in jobs for part in job])
        return [bool(known) for known in await self._run("probe", ref, topology.to_json(), packed)]

    # ---- working --------------------------------------------------------------------------------------------------

    async def claim(
        self,
        ref: PartitionRef,
        worker: str,
        seq: int,
        limit: int,
        lease_ms: int,
        acks: Sequence[Settled] = (),
        *,
        suspect: bool = True,
    ) -> Claim:
        """Acknowledge, recover, promote what is due, and lease up to ``limit`` ready jobs."""
        check_limit(limit)
        check_batch(acks)
        packed = _pack([part for ack in acks for part in ack]) if acks else b""
        seen = await self._hints.before_claim(ref) if self._hints is not None else b""
        reply = await self._run("claim", ref, ref.label, worker, seq, limit, lease_ms, packed, int(suspect))
        token = b"%b:%d" % (worker.encode(), seq)
        if reply[0] == b"gone":
            if self._hints is not None:
                with suppress(StoreUnavailable):
                    await self._hints.forget(ref)
            return Claim(token, refused=list(range(len(acks))), gone=True)
        _, now, refused, jobs, following, alarm_ms, more, due = reply
        if self._hints is not None:
            with suppress(StoreUnavailable):
                following, alarm_ms = await self._hints.after_claim(ref, worker, Outlook(more, due), seen)
        hint = _ref(ref.queue, following) if following and following != b"@" else None
        return Claim(token, _claimed(jobs), refused, False, now, hint, None if alarm_ms < 0 else alarm_ms)

    async def resume(self, ref: PartitionRef, worker: str, seq: int, lease_ms: int) -> Claim:
        """Return again the batch of an earlier claim whose reply was lost, its leases renewed."""
        reply = await self._run("resume", ref, worker, seq, lease_ms)
        token = b"%b:%d" % (worker.encode(), seq)
        if reply[0] == b"gone":
            return Claim(token, gone=True)
        return Claim(token, _claimed(reply[2]), now=reply[1])

    async def ack(self, ref: PartitionRef, acks: Sequence[Settled]) -> list[int]:
        """Remove finished jobs. Returns the indexes that were not leased under their token."""
        check_batch(acks)
        refused, ready = await self._run("ack", ref, ref.label, _pack([part for ack in acks for part in ack]))
        await self._hint(ref, ready=ready)
        return list(refused)

    async def fail(self, ref: PartitionRef, failures: Sequence[Failure]) -> list[int]:
        """Record failed runs. Returns refused indexes."""
        check_batch(failures)
        flat: list[Any] = []
        for failure in failures:
            delay = -1 if failure.delay_ms is None else failure.delay_ms
            flat += (failure.key, failure.token, delay, failure.status, failure.error)
        refused, due, ready = await self._run("fail", ref, ref.label, _pack(flat))
        await self._hint(ref, ready=ready, due=due)
        return list(refused)

    async def release(self, ref: PartitionRef, releases: Sequence[Release]) -> list[int]:
        """Hand jobs back without costing an attempt. Returns refused indexes."""
        check_batch(releases)
        packed = _pack([part for release in releases for part in release])
        refused, ready, due = await self._run("release", ref, ref.label, packed)
        await self._hint(ref, ready=ready, due=due)
        return list(refused)

    async def renew(self, ref: PartitionRef, leases: Sequence[Settled], lease_ms: int) -> list[int]:
        """Extend leases to now + ``lease_ms``. Returns refused indexes."""
        check_batch(leases)
        return list(await self._run("renew", ref, lease_ms, _pack([part for lease in leases for part in lease])))

    async def recover(self, ref: PartitionRef) -> int:
        """Return jobs with expired leases to ready; the number of them."""
        recovered = int(await self._run("recover", ref, ref.label))
        await self._hint(ref, ready=int(recovered > 0))
        return recovered

    async def promote_due(self, ref: PartitionRef) -> int:
        """Move due jobs to ready; the number of them."""
        promoted = int(await self._run("promote_due", ref, ref.label))
        await self._hint(ref, ready=int(promoted > 0))
        return promoted

    async def park(self, ref: PartitionRef, jobs: Sequence[Unknown]) -> list[int]:
        """Let jobs wait by type until a worker knows it. Returns refused indexes."""
        check_batch(jobs)
        refused, ready, now = await self._run("park", ref, ref.label, _pack([part for job in jobs for part in job]))
        if self._hints is not None and now:
            await self._hints.parked(ref, now)
        await self._hint(ref, ready=ready)
        return list(refused)

    async def unpark(self, ref: PartitionRef, types: Sequence[str]) -> int:
        """Make parked jobs of these types ready; the number of them."""
        check_batch(types)
        freed, left = await self._run("unpark", ref, ref.label, _pack(list(types)))
        if self._hints is not None and not left:
            await self._hints.unparked(ref)
        await self._hint(ref, ready=int(freed > 0))
        return int(freed)

    async def parked(self, ref: PartitionRef) -> dict[str, int]:
        """Return how many jobs wait for each type, at most 100 types."""
        flat = iter(await self._run("parked", ref, 100))
        return {name.decode(): int(number) for name, number in zip(flat, flat, strict=True)}

    async def parked_partitions(self, queue: str) -> dict[PartitionRef, int]:
        """Return the partitions that hold parked jobs, with the time (ms) when one was parked last."""
        flat = iter(await self._client.command("ZRANGE", self._keys.queue(queue, "parked"), 0, -1, "WITHSCORES"))
        return {_ref(queue, label): int(float(at)) for label, at in zip(flat, flat, strict=True)}

    async def bury_parked(self, ref: PartitionRef, type: str, limit: int = MAX_UNPARK) -> int:
        """Make parked jobs of this type dead letters; the number of them."""
        check_page(limit)
        dead, left = await self._run("bury_parked", ref, ref.label, type, no_worker_knows(type), limit)
        if self._hints is not None and not left:
            await self._hints.unparked(ref)
        return int(dead)

    # ---- dead letters ---------------------------------------------------------------------------------------------

    async def dead_letters(
        self, ref: PartitionRef, after: DeadLetter | None = None, limit: int = 100
    ) -> list[DeadLetter]:
        """Return at most ``limit`` dead letters, oldest first, beginning after one that was seen."""
        check_page(limit)
        while True:
            seen = (after.letter, after.died_at) if after else (b"", 0)
            flat = iter(await self._run("dead_letters", ref, *seen, limit))
            page = [
                DeadLetter(letter, int(float(at)), record, changes)
                for letter, at, record, changes in zip(flat, flat, flat, flat, strict=True)
            ]
            fresh = [letter for letter in page if after is None or letter.order > after.order]
            if fresh or not page:
                return fresh
            after = page[-1]

    async def remove_dead(self, ref: PartitionRef, letters: Sequence[bytes]) -> int:
        """Remove dead letters; the number of those that were there."""
        check_batch(letters)
        return int(await self._run("dead_remove", ref, _pack(list(letters))))

    # ---- waking ---------------------------------------------------------------------------------------------------

    async def wait_hint(self, queues: Sequence[str], timeout: float) -> PartitionRef | str | None:
        """Wait at most ``timeout`` seconds until a partition of one of the queues is worth a claim."""
        # The first queue that has a hint is served: each call begins with another one, or one starves the rest.
        self._waits += 1
        first = self._waits % len(queues)
        queues = (*queues[first:], *queues[:first])
        if self._hints is not None and len(queues) > 1:
            return await self._first_hint(queues, timeout)
        hot = {self._keys.queue(queue, "hot"): queue for queue in queues}
        reply = await self._client.blocking(timeout, "BZPOPMIN", *hot, f"{max(timeout, 0.001):.3f}")
        if reply is None:
            return None
        queue = hot[reply[0]]
        if reply[1] == b"@":
            return queue
        return _ref(queue, reply[1])

    async def _first_hint(self, queues: Sequence[str], timeout: float) -> PartitionRef | str | None:
        """Wait for several queues whose keys lie on different nodes; a second hint at the same moment is given back."""
        for queue in queues:  # in turn, before the nodes race
            if popped := await self._client.command("ZPOPMIN", self._keys.queue(queue, "hot")):
                return queue if popped[0] == b"@" else _ref(queue, popped[0])
        waits = [asyncio.create_task(self.wait_hint([queue], timeout)) for queue in queues]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
            results = await asyncio.gather(*waits, return_exceptions=True)
        problem = next((each for each in results if isinstance(each, Exception)), None)
        hints = [each for each in results if isinstance(each, PartitionRef | str)]
        for extra in hints[1:]:
            if isinstance(extra, PartitionRef):
                await self.hint(extra)
        if not hints and problem is not None:
            raise problem
        return hints[0] if hints else None

    async def hint(self, ref: PartitionRef) -> None:
        """Give a hint back, or raise one; it goes to the head."""
        await self._client.command("ZADD", self._keys.queue(ref.queue, "hot"), "NX", 0, ref.label)

    async def tick(self, queue: str, worker: str) -> int | None:
        """Turn what is due into hints; the ms until the next due time if this worker holds the alarm."""
        ms = int(await self._client.run(script("tick"), self._keys.of_queue_script("tick", queue), (worker,)))
        return None if ms < 0 else ms

    async def leave(self, queue: str, worker: str) -> None:
        """Forget a worker that stops; the alarm that it held is offered to another one."""
        await self._client.run(script("leave"), self._keys.of_queue_script("leave", queue), (worker,))

    # ---- the server ------------------------------------------------------------------------------------------------

    async def read_marker(self) -> str | None:
        """Return the mark that says which data set this is; None on an empty or flushed server."""
        stored = await self._client.command("GET", self._keys.marker)
        return None if stored is None else stored.decode()

    async def write_marker(self, marker: str) -> str:
        """Set the mark if there is none; return the one that counts."""
        await self._client.command("SET", self._keys.marker, marker, "NX")
        stored = await self._client.command("GET", self._keys.marker)
        return str(stored.decode())


def _ref(queue: str, label: bytes) -> PartitionRef:
    version, _, partition = label.partition(b":")
    return PartitionRef(queue, int(version), int(partition))


def _claimed(packed: bytes) -> list[Claimed]:
    if not packed:
        return []
    flat = iter(msgpack.unpackb(packed, raw=True, strict_map_key=False))
    return list(map(Claimed, flat, flat, flat))


def _counts(reply: list[Any]) -> Counts:
    ready, scheduled, retry, leased, parked, moving, arrived, dead = (int(size) for size in reply[1:9])
    oldest, due, marked = (None if value < 0 else int(value) for value in reply[9:12])
    return Counts(
        _STATES[reply[0]],
        ready,
        scheduled,
        retry,
        leased,
        parked,
        moving,
        arrived,
        dead,
        oldest,
        due,
        marked,
        int(reply[12]),
    )
