"""What the conformance tests do with a store, in few words."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from itertools import count
from typing import Any

from headrace.envelope import decode_record, encode_body
from headrace.ids import encode_id, partition_of
from headrace.job import Job
from headrace.lifecycle import promote
from headrace.stores.base import (
    Accepted,
    Claim,
    Claimed,
    Counts,
    Failure,
    Fence,
    Moved,
    NewJob,
    Release,
    Settled,
    Store,
)
from headrace.topology import PartitionRef, Topology

QUEUE = "emails"
LONG_MS = 3_600_000

_nonces = count(1)
_runners = count(1)


def ref(partition: int = 0, version: int = 1) -> PartitionRef:
    return PartitionRef(QUEUE, version, partition)


def key(job_id: str, lane: bytes = b"1") -> bytes:
    return lane + encode_id(job_id)


def new(job_id: str, when: int = 0, payload: Any = None, *, lane: bytes = b"1") -> NewJob:
    return NewJob(key(job_id, lane), when, encode_body("send", payload, max_payload_bytes=1 << 23))


def fresh_nonce() -> bytes:
    return b"nonce-%d" % next(_nonces)


async def enqueue(
    store: Store,
    *jobs: NewJob | str,
    at: PartitionRef | None = None,
    partitions: int = 1,
    nonce: bytes | None = None,
    incarnation: int = 1,
) -> Accepted | Moved:
    """Enqueue jobs (or ids of jobs for now) into v1:0, or into the partition ``at``."""
    batch = [new(job) if isinstance(job, str) else job for job in jobs]
    return await store.enqueue(at or ref(), partitions, nonce or fresh_nonce(), batch, incarnation)


async def counts(store: Store, at: PartitionRef | None = None) -> Counts:
    (found,) = await store.counts([at or ref()])
    return found


async def sizes(store: Store, at: PartitionRef | None = None) -> dict[str, int]:
    return (await counts(store, at)).nonempty()


def opened(claimed: Claimed, at: PartitionRef | None = None) -> Job:
    """The job in a claimed record."""
    where = at or ref()
    return decode_record(
        claimed.key[1:],
        claimed.record,
        claimed.changes,
        queue=where.queue,
        version=where.version,
        partition=where.partition,
    )


def ids(claim: Claim) -> list[str]:
    return [opened(job).id for job in claim.jobs]


async def no_pause() -> None:
    """An audit need not spare the store of a test."""


class Worker:
    """Claims under one name, each call with a sequence number of its own."""

    def __init__(self, store: Store, name: str = "w") -> None:
        self.store = store
        self.name = name
        self.seq = 0

    async def claim(
        self,
        limit: int = 100,
        lease_ms: int = LONG_MS,
        *,
        at: PartitionRef | None = None,
        acks: Sequence[Settled] = (),
        suspects: int = 1,
        alone: bool = False,
        fence: Fence | None = None,
    ) -> Claim:
        self.seq += 1
        where = at or ref()
        return await self.store.claim(
            where, self.name, self.seq, limit, lease_ms, acks, suspects=suspects, alone=alone, fence=fence
        )


async def claim_when_due(worker: Worker, advance: Callable[[int], Awaitable[None]], ms: int, not_before: int) -> Claim:
    """Claim now and again after ``ms``: the job must not come before ``not_before`` and must come by then.

    On a server the time may have passed before the first claim already, if the machine was slow.
    """
    early = await worker.claim()
    if early.jobs:
        assert early.now >= not_before
        return early
    await advance(ms)
    return await worker.claim()


def settled(claim: Claim) -> list[Settled]:
    return [Settled(job.key, claim.token) for job in claim.jobs]


def failures(claim: Claim, delay_ms: int | None, error: str = "boom") -> list[Failure]:
    return [Failure(job.key, claim.token, delay_ms, error) for job in claim.jobs]


def releases(claim: Claim, delay_ms: int = 0, note: str = "") -> list[Release]:
    return [Release(job.key, claim.token, delay_ms, note) for job in claim.jobs]


async def created(store: Store, partitions: int = 1) -> Topology:
    """Promote version 1 of the queue."""
    return await promote(store, QUEUE, 1, partitions)


def id_of(partition: int, partitions: int) -> str:
    """An id that belongs to that partition of so many."""
    return next(name for n in count() if partition_of(name := f"job-{n}", partitions) == partition)


async def run_everything(store: Store, topology: Topology) -> list[str]:
    """Claim and acknowledge whatever is ready in any version; the ids."""
    done = []
    worker = Worker(store, f"runner-{next(_runners)}")
    for version in topology.versions:
        for at in topology.refs(version):
            while (claim := await worker.claim(at=at, alone=True)).jobs:
                assert await store.ack(at, settled(claim)) == []
                done += ids(claim)
    return done


async def stored_topology(store: Store) -> Topology:
    topology = await store.read_topology(QUEUE)
    assert topology is not None
    return topology


async def states(store: Store, version: int, partitions: int) -> list[str]:
    found = await store.counts([ref(p, version) for p in range(partitions)])
    return [each.state for each in found]


async def partition_counts_accepted(store: Store, version: int, partitions: int) -> set[int]:
    """With which partition counts the version's partitions take jobs."""
    accepted = set()
    for partition in range(partitions):
        for believed in range(1, 20):
            answer = await enqueue(store, f"probe-{partition}", at=ref(partition, version), partitions=believed)
            if not isinstance(answer, Moved):
                accepted.add(believed)
                claim = await Worker(store, f"p-{version}-{partition}-{believed}").claim(at=ref(partition, version))
                await store.ack(ref(partition, version), settled(claim))
    return accepted
