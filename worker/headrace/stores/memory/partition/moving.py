"""Jobs of one partition in memory that move to another version, and the leader that it obeys."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from headrace.errors import Fenced
from headrace.stores.bounds import MAX_STEP_BYTES
from headrace.stores.memory.partition.changes import Changes
from headrace.stores.memory.partition.contents import Contents, Move
from headrace.stores.protocols.moving import Aside, Fence
from headrace.topology import PartitionRef


class MovingRules(Contents):
    """Steps of a leader."""

    def obey(self, fence: Fence) -> None:
        """Follow this leader from now on; raise Fenced if a newer one was here."""
        newer = self.newer_leader(fence)
        if newer is not None:
            raise Fenced(self.ref.queue, self.ref.label, fence.epoch, newer)

    def hint_ready(self) -> None:
        """Hint at the partition if it has ready jobs."""
        if self.ready:
            self._news.became_ready()

    def set_aside(self, to: int, limit: int) -> list[Aside]:
        """Set waiting jobs aside until ``limit`` are; all that are."""
        if self.state != "draining":
            return []
        aside = [self._aside(move) for move in self._moving.values()]
        size = sum(len(job.record) + len(job.changes) for job in aside)
        for move in self._waiting_jobs(to):
            if len(aside) >= limit or size >= MAX_STEP_BYTES:
                self._put_back(move)
                break
            self._moving[move.key[1:]] = move
            aside.append(job := self._aside(move))
            size += len(job.record) + len(job.changes)
        return aside

    def bury_waiting(self, reason: str, limit: int, now: int) -> int:
        """Make waiting jobs dead letters, if the partition drains; the number of them."""
        if self.state != "draining":
            return 0
        jobs: list[Move] = []
        size = 0
        waiting = iter(self._waiting_jobs(0))
        while len(jobs) < limit and size < MAX_STEP_BYTES and (move := next(waiting, None)) is not None:
            jobs.append(move)
            size += self._weight(move.key)
            changes = self._changes.setdefault(move.key[1:], Changes())
            changes.suspicion = 0
            self._note(changes, "drain timed out", now, b"", reason)
            self._bury(move.key, now)
        self._trim_after(len(jobs))
        return len(jobs)

    def _waiting_jobs(self, to: int) -> Iterable[Move]:
        """Take out one waiting job after the other."""
        while self._alone:
            yield Move(self._alone.popleft(), to, "alone", 0, "")
        while self._suspects:
            yield Move(self._suspects.popleft(), to, "suspect", 0, "")
        while (key := self._lanes.take_first()) is not None:
            yield Move(key, to, "ready", 0, "")
        while (due := self._retry.take_first()) is not None:
            yield Move(due[1], to, "retry", due[0], "")
        while (due := self._scheduled.take_first()) is not None:
            yield Move(due[1], to, "scheduled", due[0], "")
        while (parked := self._parked.take_any()) is not None:
            yield Move(parked[1], to, "parked", 0, parked[0])

    def _put_back(self, move: Move) -> None:
        match move.place:
            case "alone":
                self._alone.appendleft(move.key)
            case "suspect":
                self._suspects.appendleft(move.key)
            case "ready":
                self._lanes.push(move.key, head=True)
            case "retry":
                self._retry.add(move.at, move.key)
            case "scheduled":
                self._scheduled.add(move.at, move.key)
            case "parked":
                self._parked.add(move.type, move.key)

    def _aside(self, move: Move) -> Aside:
        _, record, changes = self._claimed(move.key)
        return Aside(*move, record, changes)

    def adopt(self, partitions: int, source: PartitionRef, jobs: Sequence[Aside]) -> list[bool]:
        """Insert jobs that are set aside elsewhere, each once; whether each one is or was here."""
        takes = self.state == "active" and self.partitions == partitions
        adopted = []
        for job in jobs:
            known = job.stored_id in self._adopted or (takes and job.stored_id in self._jobs)
            adopted.append(known or takes)
            if takes and not known:
                self._adopted[job.stored_id] = source
                self._insert(job)
                self._rouse()
        return adopted

    def _insert(self, job: Aside) -> None:
        self._jobs[job.stored_id] = job.record
        if job.changes:
            self._changes[job.stored_id] = Changes.unpacked(job.changes)
        match job.place:
            case "alone":
                self._alone.append(job.key)
                self._news.became_ready()
            case "suspect":
                self._suspects.append(job.key)
                self._news.became_ready()
            case "ready":
                self._push(job.key)
            case "retry":
                self._wait(self._retry, job.at, job.key)
            case "scheduled":
                self._wait(self._scheduled, job.at, job.key)
            case "parked":
                self._parked.add(job.type, job.key)

    def retarget(self, ids: Sequence[bytes], to: int) -> None:
        """Let jobs set aside move to a newer version."""
        for stored_id in ids:
            if (move := self._moving.get(stored_id)) and move.to < to:
                self._moving[stored_id] = move._replace(to=to)

    def let_go(self, ids: Sequence[bytes]) -> None:
        """Forget jobs that were set aside and adopted elsewhere."""
        for stored_id in ids:
            if self._moving.pop(stored_id, None):
                del self._jobs[stored_id]
                self._changes.pop(stored_id, None)

    def forget_arrived(self, source: PartitionRef, ids: Sequence[bytes]) -> None:
        """Forget that jobs were adopted from ``source``."""
        for stored_id in ids:
            if self._adopted.get(stored_id) == source:
                del self._adopted[stored_id]

    def arrivals(self, limit: int) -> list[tuple[bytes, PartitionRef]]:
        """Return some of the jobs that were adopted here, and where from."""
        return list(self._adopted.items())[:limit]

    def is_aside(self, stored_id: bytes) -> bool:
        """Whether a job is set aside here."""
        return stored_id in self._moving
