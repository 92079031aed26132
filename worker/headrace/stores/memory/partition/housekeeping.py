"""What keeps the jobs of one partition in memory moving, whoever is gone."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.stores.bounds import MAX_PROMOTE, MAX_RECOVER, MAX_STEP_BYTES
from headrace.stores.memory.partition.changes import Changes
from headrace.stores.memory.partition.contents import Contents
from headrace.stores.protocols.dead_letters import DeadLetter
from headrace.stores.protocols.finished import FinishedBatch, Trimmed
from headrace.stores.protocols.working import LEASE_LOST, Lost


class HousekeepingRules(Contents):
    """Expired leases and due jobs."""

    def recover(self, now: int) -> list[Lost]:
        """Take back at most MAX_RECOVER jobs with expired leases, by the suspect rule; return them."""
        taken: list[Lost] = []
        size = 0
        while len(taken) < MAX_RECOVER and (expired := self._leases.take_expired(now)) is not None:
            key, (token, until) = expired
            # One that was never lost, and has no history therefore, does not become a dead letter.
            size += self._weight(key) if key[1:] in self._changes else 0
            if taken and size > MAX_STEP_BYTES:
                self._leases.grant(key, token, until)
                break
            changes = self._changes.setdefault(key[1:], Changes())
            changes.expiries += 1
            self._note(changes, "lease expired", now, token, LEASE_LOST)
            self._expired += 1
            if changes.suspicion == 2:
                changes.crashes += 1
                if changes.crashes >= self._limiter.limits.crashes:
                    lost = f"worker lost: its process ended or froze {changes.crashes} times while it ran only this job"
                    self._note(changes, "worker lost", now, token, lost)
                    self._bury(key, now)
                    taken.append(Lost(key, token, until, dead=True))
                    continue
            waiting = self._suspects if changes.suspicion == 0 else self._alone
            changes.suspicion = min(2, changes.suspicion + 1)
            waiting.append(key)
            taken.append(Lost(key, token, until, dead=False))
        self._trim_after(sum(lost.dead for lost in taken))
        if taken:
            self._news.became_ready()
        return taken

    def trim(self, now: int) -> Trimmed:
        """Drop finished jobs and dead letters beyond what is kept, a bounded number; how many were dropped."""
        return Trimmed(self.finished.trim(self._limiter.limits.finished, now, 16), self._trim_dead(500))

    def adopt_dead(self, letters: Sequence[DeadLetter]) -> None:
        """Take over dead letters of another partition, as far as the limit lets."""
        self.dead.adopt(letters)
        self._trim_after(len(letters))

    def adopt_finished(self, batches: Sequence[FinishedBatch], now: int) -> int:
        """Keep jobs that finished elsewhere, as far as there is room; how many batches were taken."""
        keep = self._limiter.limits.finished
        taken = 0
        for batch in batches:
            if keep is None or not self.finished.has_room(batch, keep, now):
                break
            self.finished.add(batch.jobs, batch.jobs[0].finished_at, keep, now)
            taken += 1
        return taken

    def promote_due(self, now: int) -> int:
        """Move at most MAX_PROMOTE due jobs to ready; the number of them."""
        promoted = 0
        for waiting in (self._retry, self._scheduled):
            for key in (due := waiting.take_due(now, MAX_PROMOTE - promoted)):
                self._push(key)
            promoted += len(due)
        self._arrived += promoted
        if promoted:
            self._news.became_ready()
        return promoted
