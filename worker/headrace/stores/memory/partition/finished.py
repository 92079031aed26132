"""The finished jobs of one partition in memory, for as long as they are kept."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from headrace.settings import Keep
from headrace.stores.protocols.finished import FinishedBatch, FinishedJob, FoundFinished

ENTRY_BYTES = 64


@dataclass(frozen=True, slots=True)
class _Entry:
    number: int
    at: int
    batch: FinishedBatch
    size: int

    @property
    def jobs(self) -> int:
        return len(self.batch.jobs)


def _size(jobs: Sequence[FinishedJob]) -> int:
    return ENTRY_BYTES + sum(len(job.stored_id) + len(job.type) + len(job.result) + 6 for job in jobs)


class Finished:
    """Batches of finished jobs, oldest first. The rules are those of ``lua/lib/finished.lua``."""

    def __init__(self) -> None:
        self._entries: deque[_Entry] = deque()
        self._numbers = 0
        self._jobs = self._bytes = 0
        self._expires_at = 0

    @property
    def newest(self) -> bytes:
        """The newest entry; b"" if there never was one."""
        return b"%d" % self._numbers if self._numbers else b""

    def add(self, jobs: Sequence[FinishedJob], at: int, keep: Keep, now: int) -> None:
        """Keep jobs that were acknowledged together at ``at``, as long as ``keep`` says."""
        self._expire(now)
        self._numbers += 1
        size = _size(jobs)
        self._entries.append(_Entry(self._numbers, at, FinishedBatch(b"%d" % self._numbers, tuple(jobs)), size))
        self._jobs += len(jobs)
        self._bytes += size
        self._expires_at = now + keep.ms
        self._trim(keep, now, 4)

    def has_room(self, batch: FinishedBatch, keep: Keep, now: int) -> bool:
        """Whether one more batch fits beside what is kept, and is not too old."""
        self._expire(now)
        fits = self._jobs < keep.jobs and self._bytes + _size(batch.jobs) <= keep.bytes
        return fits and batch.jobs[0].finished_at + keep.ms > now

    def remove(self, entries: Sequence[bytes]) -> int:
        """Remove batches; how many there were."""
        before, gone = len(self._entries), set(entries)
        self._entries = deque(entry for entry in self._entries if entry.batch.entry not in gone)
        self._jobs = sum(entry.jobs for entry in self._entries)
        self._bytes = sum(entry.size for entry in self._entries)
        return before - len(self._entries)

    def _expire(self, now: int) -> None:
        """Forget all of them where nothing has finished for as long as they are kept."""
        if now >= self._expires_at:
            self._entries.clear()
            self._jobs = self._bytes = 0

    def trim(self, keep: Keep | None, now: int, most: int) -> int:
        """Drop at most ``most`` of the oldest batches (all of them if nothing is kept); the number of their jobs."""
        self._expire(now)
        before = self._jobs
        if keep is None:
            self._expire(self._expires_at)
        else:
            self._trim(keep, now, most)
        return before - self._jobs

    def _trim(self, keep: Keep, now: int, most: int) -> None:
        while self._entries and most > 0 and self._surplus(keep, now):
            entry = self._entries.popleft()
            self._jobs -= entry.jobs
            self._bytes -= entry.size
            most -= 1

    def _surplus(self, keep: Keep, now: int) -> bool:
        oldest = self._entries[0]
        old = oldest.at + keep.ms <= now
        large = self._bytes > keep.bytes and len(self._entries) > 1
        return old or large or self._jobs - oldest.jobs >= keep.jobs

    def page(self, after: bytes, limit: int, now: int, *, newest_first: bool) -> list[FinishedBatch]:
        """Return whole batches after one that was seen, until they hold ``limit`` jobs or more."""
        self._expire(now)
        found: list[FinishedBatch] = []
        jobs = 0
        entries = self._from_newest(older=after) if newest_first else self._from_oldest(after)
        for entry in entries:
            if jobs >= limit:
                break
            found.append(entry.batch)
            jobs += entry.jobs
        return found

    def find(self, ids: Sequence[bytes], older: bytes, newer: bytes, now: int) -> FoundFinished:
        """Look for jobs, newest first; of each the newest."""
        self._expire(now)
        wanted, jobs = set(ids), {}
        for entry in self._from_newest(older, newer):
            for job in entry.batch.jobs:
                if job.stored_id in wanted:
                    jobs[job.stored_id] = job
                    wanted.discard(job.stored_id)
        return FoundFinished(jobs, b"")

    def _from_newest(self, older: bytes = b"", newer: bytes = b"") -> Iterator[_Entry]:
        before, after = int(older or self._numbers + 1), int(newer or 0)
        return (entry for entry in reversed(self._entries) if after < entry.number < before)

    def _from_oldest(self, after: bytes) -> Iterator[_Entry]:
        return (entry for entry in self._entries if entry.number > int(after or 0))
