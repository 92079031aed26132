"""Looks at the jobs that hold up a drain, a few at a time: which they are, and which Pod has them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

from headrace.ids import decode_id
from headrace.inquiry import read_job
from headrace.stores.base import Counts, Entry, Index, Store, WorkerEntry
from headrace.topology import PartitionRef
from headrace_operator.observed import HeldJob
from headrace_operator.planning.stuck import Cause

PARTITIONS: Final = 4
"""Partitions that are looked at, a page of each index."""
JOBS: Final = 20
"""Jobs that are told of at most."""
_INDEXES: Final[dict[Cause, tuple[Index, ...]]] = {
    # What waits in the ordinary lists changes all the time, if it moves at all; what is set apart is the likely cause.
    "waiting": ("alone", "suspects", "leased"),
    "held": ("leased",),
}


async def held_jobs(
    store: Store, queue: str, version: int, counts: Mapping[int, Counts], cause: Cause
) -> tuple[HeldJob, ...]:
    """Return jobs of a draining version that a worker holds, or that have taken workers down before.

    Raises the errors of the store.
    """
    holding = sorted(
        (number for number, count in counts.items() if count.leased or (cause == "waiting" and count.ready)),
        key=lambda number: counts[number].oldest_ready_at or counts[number].now,
    )
    refs = [PartitionRef(queue, version, number) for number in holding[:PARTITIONS]]
    asked = [(ref, index) for ref in refs for index in _INDEXES[cause]]
    pages = await asyncio.gather(*(store.browse(ref, index) for ref, index in asked))
    entries = [(ref, entry) for (ref, _), page in zip(asked, pages, strict=True) for entry in page][:JOBS]
    names = sorted({entry.worker for _, entry in entries if entry.worker})
    known = {found.worker: found for found in await store.about_workers(queue, names)}
    return tuple(_held(ref, entry, known) for ref, entry in entries)


def _held(ref: PartitionRef, entry: Entry, workers: Mapping[str, WorkerEntry]) -> HeldJob:
    job = read_job(ref, entry.stored_id, entry)
    about = workers.get(entry.worker)
    holder = ""
    if entry.worker:
        holder = f"Pod {about.beat.pod}" if about is not None and about.beat.pod else f"worker {entry.worker}"
        if about is None or about.gone:
            holder += ", which is gone, until its lease ends"
    if job is None:
        return HeldJob(decode_id(entry.stored_id), "", holder)
    return HeldJob(job.id, job.type, holder, job.run_at, job.expiries, poison=job.suspect or job.alone)
