"""Finished jobs over all versions of a queue: listing them, and carrying them over when their version ends."""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import suppress
from typing import NamedTuple

from headrace.ids import decode_id, partition_of
from headrace.known_queue import topology_of
from headrace.stores.base import FinishedBatch, FinishedJob, Store
from headrace.topology import PartitionRef, Topology

PAGE_JOBS = 200

log = logging.getLogger("headrace.finished")


class Finished(NamedTuple):
    """A finished job, where it is kept and under which entry, at which place of it."""

    ref: PartitionRef
    entry: bytes
    place: int
    job: FinishedJob


async def finished_jobs(store: Store, queue: str, *, newest_first: bool = True) -> AsyncGenerator[Finished, None]:
    """Yield the finished jobs that a queue keeps, by the time of their end.

    Those of a version that is gone stand in each partition as if they had ended when it went. Reads page by page, as
    far as the caller goes on: a page of each partition first. Raises UnknownQueue.
    """
    topology = await topology_of(store, queue)
    sign = -1 if newest_first else 1
    streams = [
        _of_partition(store, ref, newest_first) for version in topology.versions for ref in topology.refs(version)
    ]
    heads = []
    for number, stream in enumerate(streams):
        if (first := await anext(stream, None)) is not None:
            heads.append((sign * first.job.finished_at, number, first))
    heapq.heapify(heads)
    while heads:
        _, number, finished = heads[0]
        yield finished
        if (following := await anext(streams[number], None)) is not None:
            heapq.heapreplace(heads, (sign * following.job.finished_at, number, following))
        else:
            heapq.heappop(heads)


async def _of_partition(store: Store, ref: PartitionRef, newest_first: bool) -> AsyncIterator[Finished]:
    after = b""
    while page := await store.finished(ref, after, PAGE_JOBS, newest_first=newest_first):
        for batch in page:
            after = batch.entry
            for place, job in enumerate(batch.jobs):
                yield Finished(ref, batch.entry, place, job)


async def carry_over(store: Store, topology: Topology, version: int) -> None:
    """Give the finished jobs of a version whose partitions are closed to the active one, newest first.

    They are kept there as far as its retention has room beside its own, in the partitions that their ids belong to,
    and behind these: of the two, its own go first when more jobs finish. A
    page that is given and not yet removed when this stops is given again, so a job may be listed twice.
    What cannot be read stays where it is, until it goes with its partition.
    """
    if not topology.settings.keeps_finished:
        return
    for ref in topology.refs(version):
        after, unreadable, room = b"", 0, True
        while room and (page := await store.finished(ref, after, PAGE_JOBS)):
            after = page[-1].entry
            giving = [
                store.adopt_finished(home, batches, topology.incarnation)
                for home, batches in _by_home(topology, page).items()
            ]
            answers = await asyncio.gather(*giving)
            if None in answers:
                return  # another promotion came in between; whoever completes the version goes on
            room = not giving or any(answers)
            unreadable += sum(not batch.jobs for batch in page)
            await store.forget_finished(ref, [batch.entry for batch in page if batch.jobs])
        if unreadable:
            log.warning(
                "queue %s: %d entries among the finished jobs of partition %s cannot be read, and go with version %d",
                topology.queue,
                unreadable,
                ref.label,
                version,
            )


def _by_home(topology: Topology, page: list[FinishedBatch]) -> dict[PartitionRef, list[FinishedBatch]]:
    """Group jobs by the partition of the active version that they belong to; what ended together stays together."""
    homes: dict[PartitionRef, list[FinishedBatch]] = {}
    for batch in page:
        parts: dict[int, list[FinishedJob]] = {}
        for job in batch.jobs:
            with suppress(ValueError):  # an id of a foreign hand belongs nowhere
                parts.setdefault(partition_of(decode_id(job.stored_id), topology.partitions), []).append(job)
        for partition, jobs in parts.items():
            home = PartitionRef(topology.queue, topology.active, partition)
            homes.setdefault(home, []).append(FinishedBatch(batch.entry, tuple(jobs)))
    return homes
