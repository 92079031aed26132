"""Leasing jobs of one partition in memory."""

from __future__ import annotations

from typing import NamedTuple

from headrace.stores.bounds import MAX_CLAIM_BYTES, SUSPECT_RECHECK_MS
from headrace.stores.memory.partition.contents import Contents
from headrace.stores.memory.partition.lanes import number_within
from headrace.stores.memory.partition.limits import Allowance
from headrace.stores.protocols.working import Claimed


class Outcome(NamedTuple):
    """What a claim took, whether more can be claimed at once, and else when the partition needs attention."""

    jobs: list[Claimed]
    more: bool
    next_due: int | None


class ClaimingRules(Contents):
    """Claims, and claims whose reply was lost."""

    def claim(self, token: bytes, seq: int, limit: int, until: int, now: int, *, suspect: bool) -> Outcome:
        """Lease up to ``limit`` ready jobs under ``token``; nothing if that call was given up by `resume`."""
        allowance = self._limiter.allow(limit, len(self._leases), now)
        held_back = allowance.jobs < limit
        keys: list[bytes] = []
        took_suspect = False
        if allowance.jobs and token not in self._nonces:
            took_suspect = suspect and bool(self._suspects)
            keys = self._lanes.pop(allowance.jobs - took_suspect, seq)
            if took_suspect:
                keys.append(self._suspects.popleft())
            took_suspect = self._put_back_beyond_limit(keys, took_suspect=took_suspect)
            for key in keys:
                self._leases.grant(key, token, until)
            self._limiter.leased(len(keys), now)
        return Outcome(
            [self._claimed(key) for key in keys],
            *self._outlook(allowance, now, held_back=held_back, took_suspect=took_suspect),
        )

    def _put_back_beyond_limit(self, keys: list[bytes], *, took_suspect: bool) -> bool:
        """Return what is beyond MAX_CLAIM_BYTES to where it was; whether the suspect is still among the keys."""
        fit = number_within([len(self._jobs[key[1:]]) for key in keys], MAX_CLAIM_BYTES)
        if took_suspect and fit < len(keys):
            self._suspects.appendleft(keys.pop())
            took_suspect = False
        while len(keys) > fit:
            self._lanes.push(keys.pop(), head=True)
        return took_suspect

    def _outlook(
        self, allowance: Allowance, now: int, *, held_back: bool, took_suspect: bool
    ) -> tuple[bool, int | None]:
        """Say whether another claim is worth while at once, and when the partition needs attention otherwise."""
        ready = bool(self._lanes)
        if ready and not held_back:
            return True, None
        due = self.next_due()
        if ready and allowance.reopens is not None:
            due = allowance.reopens if due is None else min(due, allowance.reopens)
        if self._suspects and self._limiter.limits.hold != "claim":
            if took_suspect and not held_back:
                return True, None
            due = now + SUSPECT_RECHECK_MS if due is None else min(due, now + SUSPECT_RECHECK_MS)
        return False, due

    def resume(self, token: bytes, until: int, now: int) -> list[Claimed]:
        """Return the jobs leased under ``token``; the call of that token leases nothing from now on."""
        self._nonces.remember(token, now)
        keys = self._leases.under(token)
        for key in keys:
            self._leases.grant(key, token, until)
        return [self._claimed(key) for key in keys]
