"""Live jobs of a queue by state, over all its versions and partitions: page by page, as far as the caller goes on."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import NamedTuple

from headrace.inquiry import read_job
from headrace.job import Job
from headrace.known_queue import topology_of
from headrace.stores.base import INDEXES, Entry, LiveState, Store
from headrace.topology import PartitionRef


class LiveJob(NamedTuple):
    """A live job, opened. ``job`` is None if its record cannot be read by this version of Headrace."""

    ref: PartitionRef
    state: LiveState
    entry: Entry
    job: Job | None


async def live_jobs(store: Store, queue: str, state: LiveState) -> AsyncGenerator[LiveJob, None]:
    """Yield the jobs of one state, version by version and partition by partition.

    In each partition those come first that are to run, fall due, or lose their lease first. Jobs move meanwhile, so one
    may be missed or seen twice. Raises UnknownQueue.
    """
    topology = await topology_of(store, queue)
    for version in sorted(topology.versions):
        for ref in topology.refs(version):
            for index in INDEXES[state]:
                seen = 0
                while page := await store.browse(ref, index, seen):
                    seen += len(page)
                    for entry in page:
                        yield LiveJob(ref, state, entry, read_job(ref, entry.stored_id, entry))
