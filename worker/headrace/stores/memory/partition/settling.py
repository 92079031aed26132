"""What comes of a lease in one partition in memory."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.stores.memory.partition.changes import Changes
from headrace.stores.memory.partition.contents import Contents
from headrace.stores.protocols.finished import FinishedJob, Success
from headrace.stores.protocols.working import Failure, Release, Report, Settled


class SettlingRules(Contents):
    """Steps on jobs that are leased under the caller's token."""

    def ack(self, acks: Sequence[Settled], successes: Sequence[Success], now: int) -> list[int]:
        """Remove finished jobs, and keep what is told of them, if wanted; the indexes of the refused ones."""
        refused = []
        told = []
        for index, (key, token) in enumerate(acks):
            if not self._leases.end(key, token):
                refused.append(index)
                continue
            del self._jobs[key[1:]]
            self._changes.pop(key[1:], None)
            if successes:
                worker = token.decode(errors="replace").rpartition(":")[0]
                told.append(FinishedJob(key[1:], *successes[index], now, worker))
        if told and (keep := self._limiter.limits.finished) is not None:
            self.finished.add(told, now, keep, now)
        self._reopen(len(acks) - len(refused))
        return refused

    def fail(self, failures: Sequence[Failure], now: int) -> list[int]:
        """Send failed jobs to their retry or to the dead letters; the indexes of the refused ones."""
        refused = []
        died = 0
        for index, (key, token, delay_ms, error, status) in enumerate(failures):
            if not self._leases.end(key, token):
                refused.append(index)
                continue
            changes = self._changes.setdefault(key[1:], Changes())
            changes.attempt += 1
            changes.suspicion = 0
            self._note(changes, status, now, token, error)
            if delay_ms is None:
                self._bury(key, now)
                died += 1
            else:
                self._wait(self._retry, now + delay_ms, key)
        self._trim_after(died)
        self._reopen(len(failures) - len(refused))
        return refused

    def release(self, releases: Sequence[Release], now: int) -> list[int]:
        """Put jobs back to the head of their lane, in the order given, or let them wait; the refused indexes."""
        refused = []
        heads: list[bytes] = []
        for index, (key, token, delay_ms, note) in enumerate(releases):
            if not self._leases.end(key, token):
                refused.append(index)
                continue
            facts = self._changes.get(key[1:])
            was_suspect = facts is not None and facts.suspicion > 0
            if note or (was_suspect and delay_ms > 0):
                facts = self._changes.setdefault(key[1:], Changes())
                self._note(facts, note or "put off", now, token)
                if delay_ms > 0:  # it has ended by itself
                    facts.suspicion, facts.crashes = 0, 0
            if delay_ms > 0:
                self._wait(self._retry, now + delay_ms, key)
            else:
                heads.append(key)
        for key in reversed(heads):
            if (facts := self._changes.get(key[1:])) and facts.suspicion:
                (self._suspects if facts.suspicion == 1 else self._alone).appendleft(key)
                self._news.became_ready()
            else:
                self._push(key, head=True)
        self._reopen(len(releases) - len(refused))
        return refused

    def renew(self, leases: Sequence[Settled], lease_ms: int, reports: Sequence[Report], now: int) -> list[int]:
        """Extend leases and keep what their runs report; the indexes of the refused ones."""
        refused = []
        for index, (key, token) in enumerate(leases):
            if self._leases.holds(key, token):
                self._leases.grant(key, token, now + lease_ms)
            else:
                refused.append(index)
        for element, value, note in reports:
            if element not in refused:
                self._changes.setdefault(leases[element].key[1:], Changes()).progress = (value, note, now)
        return refused
