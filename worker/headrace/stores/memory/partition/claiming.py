"""Leasing jobs of one partition in memory."""

from __future__ import annotations

from typing import NamedTuple

from headrace.stores.bounds import FENCED_RECHECK_MS, SUSPECT_RECHECK_MS, number_within
from headrace.stores.memory.partition.contents import Contents
from headrace.stores.memory.partition.limits import Allowance
from headrace.stores.protocols.moving import Fence
from headrace.stores.protocols.working import Claimed


class Outcome(NamedTuple):
    """What a claim took, whether more can be claimed at once, and else when the partition needs attention.

    ``room``: the worker is to make room for a job that must run alone. ``fenced``: only a leader may claim here, and
    the caller is not it. ``fencing_token``: of the leases.
    """

    jobs: list[Claimed]
    more: bool
    next_due: int | None
    room: bool
    fenced: bool
    fencing_token: int


class ClaimingRules(Contents):
    """Claims, and claims whose reply was lost."""

    def claim(
        self,
        token: bytes,
        worker: str,
        seq: int,
        limit: int,
        until: int,
        now: int,
        *,
        suspects: int,
        alone: bool,
        fence: Fence | None,
    ) -> Outcome:
        """Lease up to ``limit`` ready jobs under ``token``; nothing if that call was given up by `resume`.

        ``fence``: the leader that claims, where only a leader may.
        """
        fenced = self._limiter.limits.leader_only and (fence is None or self.newer_leader(fence) is not None)
        if fenced:
            # Somebody else is to run what is here; the hint comes back later, lest two pass it to and fro.
            allowance = Allowance(0, now + FENCED_RECHECK_MS)
        else:
            allowance = self._limiter.allow(limit, len(self._leases), now)
        held_back = allowance.jobs < limit
        wanted = 0 if self._nonces.knows(token, now) else allowance.jobs
        keys: list[bytes] = []
        suspected = 0
        apart = self._alone.popleft() if alone and wanted and self._alone else None
        room = not fenced and self._make_room(worker, now, wants=limit > 0, taken=apart is not None)
        if apart is not None:
            keys = [apart]
        elif wanted and not room:
            suspected = min(suspects, wanted, len(self._suspects))
            keys = self._lanes.pop(wanted - suspected, seq)
            keys += [self._suspects.popleft() for _ in range(suspected)]
            suspected -= self._put_back_beyond_limit(keys, suspected)
        for key in keys:
            self._leases.grant(key, token, until)
        self._limiter.leased(len(keys), now)
        took_suspects = suspected > 0 or apart is not None
        more, due = self._outlook(allowance, now, held_back=held_back, took_suspects=took_suspects)
        fencing_token = self._next_fencing_token(now) if keys else 0
        return Outcome([self._claimed(key) for key in keys], more, due, room, fenced, fencing_token)

    def _make_room(self, worker: str, now: int, *, wants: bool, taken: bool) -> bool:
        """Decide whether this worker is to run nothing soon, for a job that must run alone."""
        if self._limiter.limits.hold:
            return False
        if taken or not self._alone:
            self._room.made(worker)
            return False
        return self._room.asked(worker, now, wants=wants)

    def _put_back_beyond_limit(self, keys: list[bytes], suspected: int) -> int:
        """Return what is beyond MAX_STEP_BYTES to where it was; how many of the suspects, which come last, went."""
        fit = number_within([len(job.record) + len(job.changes) for job in map(self._claimed, keys)])
        plain = len(keys) - suspected
        went = 0
        while len(keys) > fit:
            key = keys.pop()
            if len(keys) >= plain:
                self._suspects.appendleft(key)
                went += 1
            else:
                self._lanes.push(key, head=True)
        return went

    def _outlook(
        self, allowance: Allowance, now: int, *, held_back: bool, took_suspects: bool
    ) -> tuple[bool, int | None]:
        """Say whether another claim is worth while at once, and when the partition needs attention otherwise."""
        ready = bool(self._lanes)
        if ready and not held_back:
            return True, None
        due = self.next_due()
        if ready and allowance.reopens is not None:
            due = allowance.reopens if due is None else min(due, allowance.reopens)
        if (self._suspects or self._alone) and not self._limiter.limits.hold:
            if took_suspects and not held_back:
                return True, None
            due = now + SUSPECT_RECHECK_MS if due is None else min(due, now + SUSPECT_RECHECK_MS)
        return False, due

    def resume(self, token: bytes, until: int, now: int) -> tuple[list[Claimed], int]:
        """Return the jobs leased under ``token`` and their fencing token; its call leases nothing from now on."""
        self._nonces.remember(token, now, trim=False)
        keys = self._leases.under(token)
        for key in keys:
            self._leases.grant(key, token, until)
        return [self._claimed(key) for key in keys], self._next_fencing_token(now) if keys else 0

    def _next_fencing_token(self, now: int) -> int:
        """Return a number above that of every earlier lease here. The same as ``lua/lib/fencing_token.lua``."""
        self._fencing_token = max(self._fencing_token + 1, now * 1000)
        return self._fencing_token
