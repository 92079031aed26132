"""Finished jobs on Redis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgpack

from headrace.redis.client import Argument
from headrace.stores.bounds import MAX_ASKED, check_batch, check_page
from headrace.stores.protocols.finished import FinishedBatch, FinishedJob, FoundFinished, Success, Trimmed
from headrace.stores.protocols.moving import Fence
from headrace.stores.protocols.working import Settled
from headrace.stores.redis.access import RedisAccess, pack
from headrace.topology import PartitionRef


class RedisFinished(RedisAccess):
    """Implements `headrace.stores.protocols.finished.FinishedSteps`."""

    async def finished(
        self, ref: PartitionRef, after: bytes = b"", limit: int = 100, *, newest_first: bool = True
    ) -> list[FinishedBatch]:
        """Return whole batches of finished jobs, beginning after the entry that was seen last."""
        check_page(limit)
        while True:  # one step may have met nothing but entries of a foreign hand
            after, rows = await self._run("finished", ref, after, limit, int(newest_first))
            flat = iter(rows)
            page = [
                FinishedBatch(entry, jobs_of(data, int(at), worker.decode(errors="replace")))
                for entry, at, worker, data in zip(flat, flat, flat, flat, strict=True)
            ]
            if page or not after:
                return page

    async def find_finished(
        self, ref: PartitionRef, ids: Sequence[bytes], *, older: bytes = b"", newer: bytes = b""
    ) -> FoundFinished:
        """Look for stored ids among finished jobs, newest first."""
        check_batch(ids, MAX_ASKED)
        following, rows = await self._run("find_finished", ref, older, newer, *ids)
        flat = iter(rows)
        jobs = {
            stored_id: FinishedJob(
                stored_id, kind.decode(errors="replace"), int(attempt), result, int(at), worker.decode(errors="replace")
            )
            for _, at, worker, stored_id, kind, attempt, result in zip(*[flat] * 7, strict=True)
        }
        return FoundFinished(jobs, following)

    async def adopt_finished(self, ref: PartitionRef, batches: Sequence[FinishedBatch], incarnation: int) -> int | None:
        """Keep jobs that finished in an older version, as far as there is room; how many batches were taken."""
        check_batch(batches)
        flat: list[Argument] = []
        for batch in batches:
            first = batch.jobs[0]
            flat += (first.finished_at, first.worker, len(batch.jobs), _packed(batch.jobs))
        taken = int(await self._run("adopt_finished", ref, incarnation, *flat))
        return None if taken < 0 else taken

    async def forget_finished(self, ref: PartitionRef, entries: Sequence[bytes]) -> int:
        """Remove batches of finished jobs, which were adopted elsewhere; how many there were."""
        check_batch(entries)
        return int(await self._run("forget_finished", ref, *entries)) if entries else 0

    async def trim(self, ref: PartitionRef, *, fence: Fence | None = None) -> Trimmed:
        """Drop finished jobs and dead letters beyond what is kept; call it until it drops nothing."""
        return Trimmed(*map(int, await self._fenced("trim", ref, fence)))


def pack_successes(acks: Sequence[Settled], successes: Sequence[Success]) -> bytes:
    """Pack what is told of acknowledged jobs; b"" if nothing is."""
    if not successes:
        return b""
    flat: list[Any] = []
    for (key, _), (kind, attempt, result) in zip(acks, successes, strict=True):
        flat += (key[1:], kind, attempt, result)
    return pack(flat)


def _packed(jobs: Sequence[FinishedJob]) -> bytes:
    return pack([part for job in jobs for part in (job.stored_id, job.type, job.attempt, job.result)])


def jobs_of(data: bytes, at: int, worker: str) -> tuple[FinishedJob, ...]:
    """Return the jobs of one entry of the stream, which finished ``at`` that ms; none if it cannot be read."""
    try:
        flat = iter(msgpack.unpackb(data, raw=True))
        return tuple(
            FinishedJob(stored_id, kind.decode(errors="replace"), attempt, result, at, worker)
            for stored_id, kind, attempt, result in zip(flat, flat, flat, flat, strict=True)
        )
    except (ValueError, TypeError, AttributeError, msgpack.UnpackException):
        return ()  # of a foreign hand: the audit's business
