"""Where jobs are, and what became of them: looked up by their ids, over all versions of a queue.

A live job is one step away, in the partition that its id belongs to. One that has ended is looked for among the dead
letters and, if the queue keeps them, the finished jobs of that partition, newest first, in bounded steps: the whole
costs as much as is kept there. Who looks for a job again, and saw it live before, looks only at what ended since.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from headrace.envelope import decode_record
from headrace.ids import check_id, encode_id, partition_of
from headrace.job import Job
from headrace.job_status import JobStatus, State
from headrace.known_queue import topology_of
from headrace.stores.base import MAX_ASKED, DeadLetter, Described, Entry, FinishedJob, Live, LiveState, Store
from headrace.topology import PartitionRef, Topology

_STATES: Final[dict[LiveState, State]] = {
    "scheduled": "scheduled", "ready": "ready", "leased": "leased", "retry": "retry_wait", "parked": "parked",
}  # fmt: skip
_ROUNDS = 2
"""A job that moves to another version between two steps of a look is found by the next one."""


class JobDescription(NamedTuple):
    """A job with all that is known of it. ``job``: with payload and history; None if it has succeeded or is unknown."""

    status: JobStatus
    job: Job | None


class _Seen(NamedTuple):
    """A job was live there then: if it has ended, it has later than ``newest`` finished jobs and ``now`` (ms)."""

    ref: PartitionRef
    newest: bytes
    now: int


class Inquiry:
    """Looks for jobs of one queue; remembers which were live, so that looking again costs little."""

    def __init__(self, store: Store, queue: str) -> None:
        self._store = store
        self._queue = queue
        self._seen: dict[str, _Seen] = {}

    async def topology(self) -> Topology:
        """Return the queue's topology. Raises UnknownQueue."""
        return await topology_of(self._store, self._queue)

    async def look(self, ids: Iterable[str]) -> dict[str, JobStatus]:
        """Return where each job is, in the order of ``ids``. Raises InvalidInput, UnknownQueue, StoreUnavailable."""
        asked = list(dict.fromkeys(map(check_id, ids)))
        found: dict[str, JobStatus] = {}
        for _ in range(_ROUNDS):
            if left := [id for id in asked if id not in found]:
                topology = await self.topology()
                found |= await self._live(topology, left)
            if left := [id for id in asked if id not in found]:
                found |= await self._ended(topology, left)
        return {id: found.get(id) or JobStatus(id, "unknown") for id in asked}

    async def describe(self, id: str) -> JobDescription:
        """Return one job with its payload and history. Raises as `look`."""
        stored = encode_id(check_id(id))
        for _ in range(_ROUNDS):
            topology = await self.topology()
            for version in newest_first(topology):
                ref = PartitionRef(self._queue, version, partition_of(id, topology.versions[version].partitions))
                if (described := await self._store.describe(ref, stored)) is not None:
                    return JobDescription(_live_status(id, ref, described.live), read_job(ref, stored, described))
            letters: dict[bytes, DeadLetter] = {}
            ended = await self._ended(topology, [id], letters)
            if id in ended:
                status = ended[id]
                letter = letters.get(stored) if status.state == "dead" else None
                ref = PartitionRef(self._queue, status.version or 0, status.partition or 0)
                return JobDescription(status, read_job(ref, stored, letter) if letter else None)
        return JobDescription(JobStatus(id, "unknown"), None)

    async def _live(self, topology: Topology, ids: Sequence[str]) -> dict[str, JobStatus]:
        """Return those that are live."""
        found: dict[str, JobStatus] = {}
        for version in newest_first(topology):
            groups = grouped(topology, version, [id for id in ids if id not in found])
            asking = (self._store.statuses(ref, [encode_id(id) for id in group]) for ref, group in groups)
            for (ref, group), answer in zip(groups, await asyncio.gather(*asking), strict=True):
                for id, live in zip(group, answer.live, strict=True):
                    if live is not None:
                        found[id] = _live_status(id, ref, live)
                        self._seen[id] = _Seen(ref, answer.newest, answer.now)
        return found

    async def _ended(
        self, topology: Topology, ids: Sequence[str], letters: dict[bytes, DeadLetter] | None = None
    ) -> dict[str, JobStatus]:
        """Return what became of those of which anything is kept: of an id that was used again, its last end."""
        found: dict[str, JobStatus] = {}
        for version in newest_first(topology):
            for ref, group in grouped(topology, version, ids):
                by_bounds: dict[tuple[bytes, int], list[str]] = {}
                for id in group:
                    seen = self._seen.get(id)
                    bounds = (seen.newest, seen.now) if seen is not None and seen.ref == ref else (b"", 0)
                    by_bounds.setdefault(bounds, []).append(id)
                for (newer, since), some in by_bounds.items():
                    finished, dead = await asyncio.gather(
                        self._finished(topology, ref, some, newer),
                        newest_letters(self._store, ref, map(encode_id, some), since=since),
                    )
                    if letters is not None:
                        letters |= dead
                    for id in some:
                        ends = [found[id]] if id in found else []
                        if job := finished.get(encode_id(id)):
                            ends.append(_finished_status(id, ref, job))
                        if letter := dead.get(encode_id(id)):
                            ends.append(_dead_status(id, ref, letter))
                        if ends:
                            found[id] = max(ends, key=lambda end: end.at or 0)
        return found

    async def _finished(
        self, topology: Topology, ref: PartitionRef, ids: Sequence[str], newer: bytes
    ) -> dict[bytes, FinishedJob]:
        found: dict[bytes, FinishedJob] = {}
        left, older = {encode_id(id) for id in ids}, b""
        while topology.settings.keeps_finished and left:
            step = await self._store.find_finished(ref, sorted(left), older=older, newer=newer)
            found |= step.jobs
            left -= step.jobs.keys()
            if not (older := step.older):
                break
        return found


async def newest_letters(
    store: Store, ref: PartitionRef, ids: Iterable[bytes], *, since: int = 0
) -> dict[bytes, DeadLetter]:
    """Return the newest dead letter of each stored id in a partition, of those that died at ``since`` ms or later."""
    found: dict[bytes, DeadLetter] = {}
    left, go_on = set(ids), None
    while left:
        step = await store.find_dead(ref, sorted(left), since=since, go_on=go_on)
        found |= step.letters
        left -= step.letters.keys()
        if (go_on := step.go_on) is None:
            break
    return found


def newest_first(topology: Topology) -> list[int]:
    """Return the versions of a queue, the newest first: where a job is looked for, since jobs move to newer ones."""
    return sorted(topology.versions, reverse=True)


def grouped(
    topology: Topology, version: int, ids: Sequence[str], most: int = MAX_ASKED
) -> list[tuple[PartitionRef, list[str]]]:
    """Group ids by the partition of a version that they belong to, at most ``most`` at a time."""
    partitions = topology.versions[version].partitions
    groups: dict[int, list[str]] = {}
    for id in ids:
        groups.setdefault(partition_of(id, partitions), []).append(id)
    return [
        (PartitionRef(topology.queue, version, partition), group[start : start + most])
        for partition, group in sorted(groups.items())
        for start in range(0, len(group), most)
    ]


def _live_status(id: str, ref: PartitionRef, live: Live) -> JobStatus:
    return JobStatus(id, _STATES[live.state], ref.version, ref.partition, live.at, live.worker)


def _finished_status(id: str, ref: PartitionRef, job: FinishedJob) -> JobStatus:
    return JobStatus(
        id, "succeeded", ref.version, ref.partition, job.finished_at, job.worker, job.type, job.attempt, "", job.result
    )


def _dead_status(id: str, ref: PartitionRef, letter: DeadLetter) -> JobStatus:
    job = read_job(ref, letter.stored_id, letter)
    if job is None:
        unreadable = "the stored record cannot be read"
        return JobStatus(id, "dead", ref.version, ref.partition, letter.died_at, error=unreadable)
    worker = job.history[-1].worker if job.history else ""
    return JobStatus(
        id, "dead", ref.version, ref.partition, letter.died_at, worker, job.type, job.attempt, job.last_error
    )


def read_job(ref: PartitionRef, stored_id: bytes, packed: Described | DeadLetter | Entry) -> Job | None:
    """Unpack a job; None if this version of Headrace cannot read it."""
    try:
        return decode_record(
            stored_id,
            packed.record,
            packed.changes,
            queue=ref.queue,
            version=ref.version,
            partition=ref.partition,
        )
    except Exception:  # a record of a foreign hand can be broken in any way
        return None
