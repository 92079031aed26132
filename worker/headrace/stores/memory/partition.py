"""One partition in memory: its state, its indexes and every transition on them, as pure steps of a given time.

Nothing here waits, locks or reads a clock. The rules are those of the scripts in ``headrace/stores/redis/lua``; the
conformance suite holds both to them.
"""

from __future__ import annotations

import bisect
import heapq
import struct
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from headrace.errors import QueueFull, QueueHeld
from headrace.settings import QueueSettings, partition_limits
from headrace.stores.base import (
    MAX_CLAIM_BYTES,
    MAX_PROMOTE,
    MAX_RECOVER,
    MAX_UNPARK,
    NONCE_TTL_MS,
    SUSPECT_RECHECK_MS,
    Accepted,
    Claimed,
    Counts,
    DeadLetter,
    Failure,
    Moved,
    NewJob,
    PartitionState,
    Release,
    Settled,
    Unknown,
    no_worker_knows,
)
from headrace.stores.memory.changes import Changes
from headrace.stores.memory.hints import News, Outcome
from headrace.stores.memory.lanes import Lanes, number_within
from headrace.stores.memory.limits import Allowance, Limiter
from headrace.topology import PartitionRef, Topology

_TIMES = struct.Struct(">QQ")


class _Lease(NamedTuple):
    token: bytes
    until: int


class Partition:
    """A partition that exists. Keys are lane byte + stored id; ids (keys without their lane) are unique while live."""

    def __init__(self, ref: PartitionRef, epoch: int, partitions: int, settings: QueueSettings) -> None:
        self.ref = ref
        self.state: PartitionState = "active"
        self.epoch = epoch
        self.partitions = partitions
        self.successor: Topology | None = None
        self._marked_at: int | None = None
        self._jobs: dict[bytes, bytes] = {}
        self._changes: dict[bytes, Changes] = {}
        self._lanes = Lanes()
        self._scheduled: list[tuple[int, bytes]] = []
        self._retry: list[tuple[int, bytes]] = []
        self._leased: dict[bytes, _Lease] = {}
        # Holds an entry per grant and renewal; those that no longer say when a lease ends are skipped.
        self._lease_ends: list[tuple[int, bytes]] = []
        self._seen: dict[bytes, int] = {}
        self._limiter = Limiter(partition_limits(settings, partitions))
        # Keys of jobs whose lease was lost before; a worker runs one of them at a time.
        self._suspects: deque[bytes] = deque()
        self._parked: dict[str, list[bytes]] = {}
        self._dead: dict[bytes, DeadLetter] = {}
        self._news = News(False, None)

    # ---- what it holds ---------------------------------------------------------------------------------------------

    def unused(self, now: int) -> bool:
        """Whether it holds neither live jobs nor dead letters, nor the nonce of a call that may be sent again."""
        remembers = any(at > now - NONCE_TTL_MS for at in self._seen.values())
        return not (self._jobs or self._dead or remembers)

    @property
    def ready(self) -> int:
        """Number of ready jobs in all lanes, and of suspects."""
        return len(self._lanes) + len(self._suspects)

    def next_waiting(self) -> int | None:
        """Return the earliest time at which a waiting job becomes ready."""
        return min((heap[0][0] for heap in (self._scheduled, self._retry) if heap), default=None)

    def next_due(self) -> int | None:
        """Return the earliest time at which a waiting or leased job needs attention."""
        times = [at for at in (self.next_waiting(), self._next_lease_end()) if at is not None]
        return min(times, default=None)

    def counts(self, now: int) -> Counts:
        """Return the sizes of all indexes and the facts about the drain."""
        heads = self._lanes.heads()
        return Counts(
            state=self.state,
            ready=self.ready,
            scheduled=len(self._scheduled),
            retry=len(self._retry),
            leased=len(self._leased),
            parked=sum(len(keys) for keys in self._parked.values()),
            moving=0,
            arrived=0,
            dead=len(self._dead),
            oldest_ready_at=min((_TIMES.unpack_from(self._jobs[key[1:]])[1] for key in heads), default=None),
            next_due_at=self.next_waiting(),
            marked_at=self._marked_at,
            now=now,
        )

    def waiting(self) -> list[tuple[int, Claimed]]:
        """Return the jobs that wait for their time (ms), with it, in no order."""
        return [(at, self._claimed(key)) for at, key in (*self._scheduled, *self._retry)]

    def knows(self, key: bytes, nonce: bytes) -> bool:
        """Whether the id is live here, or the call of ``nonce`` (b"" for none) was applied."""
        return key[1:] in self._jobs or nonce in self._seen

    def take_news(self) -> News:
        """Return what was added since the last call, for the hints."""
        news, self._news = self._news, News(False, None)
        return news

    # ---- its place in the topology ---------------------------------------------------------------------------------

    def agree(self, epoch: int, partitions: int, settings: QueueSettings, *, settled: bool) -> None:
        """Follow a topology that is newer than what it knows (``settled``: or as new)."""
        newer = self.epoch < epoch
        if self.state == "active" and (newer or (settled and self.epoch == epoch)):
            self.partitions = partitions
        elif self.state != "draining" or not newer:
            return
        self.epoch = epoch
        self._limiter.limits = partition_limits(settings, partitions)
        # Jobs that the former settings held back are not hinted by anybody else.
        if self._limiter.limits.hold != "claim" and self.ready:
            self._news = self._news._replace(ready=True)

    def mark(self, successor: Topology, now: int) -> None:
        """Stop taking jobs, if it takes any."""
        if self.state == "active":
            self.state = "draining"
            self.successor, self._marked_at = successor, now

    def close(self) -> None:
        """Close it for ever, if it drains and holds no live job."""
        if self.state == "draining" and not self._jobs:
            self.state = "closed"

    # ---- producing -------------------------------------------------------------------------------------------------

    def enqueue(self, partitions: int, nonce: bytes, jobs: Sequence[NewJob], now: int) -> Accepted | Moved:
        """Insert the jobs whose ids are not live."""
        if self.state != "active":
            return Moved(self.state, self.successor)
        if partitions != self.partitions:
            return Moved("resized", None)
        if nonce in self._seen or not jobs:
            return Accepted(frozenset())
        existing = set()
        fresh = len({key[1:] for key, _, _ in jobs} - self._jobs.keys())
        limits = self._limiter.limits
        if fresh and limits.hold == "enqueue":
            raise QueueHeld(self.ref.queue)
        if fresh and limits.length is not None and len(self._jobs) + fresh > limits.length:
            raise QueueFull(self.ref.queue, self.ref.label, len(self._jobs), limits.length)
        for index, (key, when, body) in enumerate(jobs):
            if key[1:] in self._jobs:
                existing.add(index)
                continue
            run_at = when if when > 0 else now - when
            self._jobs[key[1:]] = _TIMES.pack(now, run_at) + body
            if run_at <= now:
                self._push(key)
            else:
                self._wait(self._scheduled, run_at, key)
        self._remember(nonce, now)
        return Accepted(frozenset(existing))

    # ---- working ---------------------------------------------------------------------------------------------------

    def claim(self, token: bytes, seq: int, limit: int, until: int, now: int, *, suspect: bool) -> Outcome:
        """Lease up to ``limit`` ready jobs under ``token``; nothing if that call was given up by `resume`."""
        allowance = self._limiter.allow(limit, len(self._leased), now)
        held_back = allowance.jobs < limit
        keys: list[bytes] = []
        took_suspect = False
        if allowance.jobs and token not in self._seen:
            took_suspect = suspect and bool(self._suspects)
            keys = self._lanes.pop(allowance.jobs - took_suspect, seq)
            if took_suspect:
                keys.append(self._suspects.popleft())
            took_suspect = self._put_back_beyond_limit(keys, took_suspect=took_suspect)
            for key in keys:
                self._lease(key, token, until)
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
        self._remember(token, now)
        keys = [key for key, lease in self._leased.items() if lease.token == token]
        for key in keys:
            self._lease(key, token, until)
        return [self._claimed(key) for key in keys]

    def ack(self, acks: Sequence[Settled]) -> list[int]:
        """Remove finished jobs; the indexes of the refused ones."""
        refused = []
        for index, (key, token) in enumerate(acks):
            if not self._unlease(key, token):
                refused.append(index)
                continue
            del self._jobs[key[1:]]
            self._changes.pop(key[1:], None)
        self._reopen(len(acks) - len(refused))
        return refused

    def fail(self, failures: Sequence[Failure], now: int) -> list[int]:
        """Send failed jobs to their retry or to the dead letters; the indexes of the refused ones."""
        refused = []
        for index, (key, token, delay_ms, error, status) in enumerate(failures):
            if not self._unlease(key, token):
                refused.append(index)
                continue
            changes = self._changes.setdefault(key[1:], Changes())
            changes.attempt += 1
            changes.suspect = False
            changes.note(status, now, token, error)
            if delay_ms is None:
                self._bury(key, now)
            else:
                self._wait(self._retry, now + delay_ms, key)
        self._reopen(len(failures) - len(refused))
        return refused

    def release(self, releases: Sequence[Release], now: int) -> list[int]:
        """Put jobs back to the head of their lane, in the order given, or let them wait; the refused indexes."""
        refused = []
        heads: list[bytes] = []
        for index, (key, token, delay_ms, note) in enumerate(releases):
            if not self._unlease(key, token):
                refused.append(index)
                continue
            facts = self._changes.get(key[1:])
            was_suspect = facts is not None and facts.suspect
            if note or (was_suspect and delay_ms > 0):
                facts = self._changes.setdefault(key[1:], Changes())
                facts.note(note or "put off", now, token)
                if delay_ms > 0:  # it has ended by itself
                    facts.suspect, facts.crashes = False, 0
            if delay_ms > 0:
                self._wait(self._retry, now + delay_ms, key)
            else:
                heads.append(key)
        for key in reversed(heads):
            if (facts := self._changes.get(key[1:])) and facts.suspect:
                self._suspects.appendleft(key)
                self._news = self._news._replace(ready=True)
            else:
                self._push(key, head=True)
        self._reopen(len(releases) - len(refused))
        return refused

    def renew(self, leases: Sequence[Settled], until: int) -> list[int]:
        """Extend leases; the indexes of the refused ones."""
        refused = []
        for index, (key, token) in enumerate(leases):
            if self._holds(key, token):
                self._lease(key, token, until)
            else:
                refused.append(index)
        return refused

    def recover(self, now: int) -> int:
        """Take back at most MAX_RECOVER jobs with expired leases, by the suspect rule; the number of them."""
        recovered = 0
        while recovered < MAX_RECOVER and (ends := self._next_lease_end()) is not None and ends <= now:
            _, key = heapq.heappop(self._lease_ends)
            lease = self._leased.pop(key)
            changes = self._changes.setdefault(key[1:], Changes())
            changes.expiries += 1
            changes.note("lease expired", now, lease.token)
            recovered += 1
            if changes.suspect:
                changes.crashes += 1
                if changes.crashes >= self._limiter.limits.crashes:
                    lost = f"worker lost: its process ended or froze {changes.crashes} times while this job ran"
                    changes.note("worker lost", now, lease.token, lost)
                    self._bury(key, now)
                    continue
            changes.suspect = True
            self._suspects.append(key)
            self._news = self._news._replace(ready=True)
        return recovered

    def promote_due(self, now: int) -> int:
        """Move at most MAX_PROMOTE due jobs to ready; the number of them."""
        promoted = 0
        for heap in (self._retry, self._scheduled):
            while heap and heap[0][0] <= now and promoted < MAX_PROMOTE:
                _, key = heapq.heappop(heap)
                self._push(key)
                promoted += 1
        return promoted

    def park(self, jobs: Sequence[Unknown], now: int) -> list[int]:
        """Let jobs wait by type; the indexes of the refused ones."""
        refused = []
        for index, (key, token, kind) in enumerate(jobs):
            if self._unlease(key, token):
                if (facts := self._changes.get(key[1:])) and facts.suspect:
                    facts.suspect = False  # not run, and it comes back through the ready lanes
                    facts.note("parked", now, token)
                bisect.insort(self._parked.setdefault(kind, []), key)
            else:
                refused.append(index)
        self._reopen(len(jobs) - len(refused))
        return refused

    def unpark(self, types: Sequence[str]) -> int:
        """Make at most MAX_UNPARK parked jobs of these types ready; the number of them."""
        freed = 0
        for kind in types:
            for key in (taken := self._take_parked(kind, MAX_UNPARK - freed)):
                self._push(key)
            freed += len(taken)
        return freed

    def bury_parked(self, kind: str, limit: int, now: int) -> int:
        """Make at most ``limit`` parked jobs of a type dead letters; the number of them."""
        for key in (taken := self._take_parked(kind, limit)):
            changes = self._changes.setdefault(key[1:], Changes())
            changes.suspect = False
            changes.note("unknown type", now, b"", no_worker_knows(kind))
            self._bury(key, now)
        return len(taken)

    def parked(self) -> dict[str, int]:
        """Return how many jobs wait for each type."""
        return {kind: len(keys) for kind, keys in sorted(self._parked.items())[:100]}

    # ---- dead letters ----------------------------------------------------------------------------------------------

    def dead_letters(self, after: DeadLetter | None, limit: int) -> list[DeadLetter]:
        """Return the oldest dead letters after one that was seen."""
        letters = (letter for letter in self._dead.values() if after is None or letter.order > after.order)
        return heapq.nsmallest(limit, letters, key=lambda letter: letter.order)

    def remove_dead(self, letters: Sequence[bytes]) -> int:
        """Remove dead letters; the number of those that were there."""
        return sum(self._dead.pop(letter, None) is not None for letter in letters)

    # ---- parts -----------------------------------------------------------------------------------------------------

    def _reopen(self, freed: int) -> None:
        """After leases ended early, hint at jobs that the in-flight limit held back."""
        if freed and self._limiter.limits.in_flight is not None and bool(self._lanes):
            self._news = self._news._replace(ready=True)

    def _take_parked(self, kind: str, limit: int) -> list[bytes]:
        parked = self._parked.pop(kind, [])
        if left := parked[limit:]:
            self._parked[kind] = left
        return parked[:limit]

    def _push(self, key: bytes, *, head: bool = False) -> None:
        if self._lanes.push(key, head=head):
            self._news = self._news._replace(ready=True)

    def _wait(self, heap: list[tuple[int, bytes]], at: int, key: bytes) -> None:
        heapq.heappush(heap, (at, key))
        earliest = self._news.waits_until
        self._news = self._news._replace(waits_until=at if earliest is None else min(at, earliest))

    def _claimed(self, key: bytes) -> Claimed:
        changes = self._changes.get(key[1:])
        return Claimed(key, self._jobs[key[1:]], changes.packed() if changes else b"")

    def _holds(self, key: bytes, token: bytes) -> bool:
        lease = self._leased.get(key)
        return lease is not None and lease.token == token

    def _lease(self, key: bytes, token: bytes, until: int) -> None:
        self._leased[key] = _Lease(token, until)
        heapq.heappush(self._lease_ends, (until, key))

    def _unlease(self, key: bytes, token: bytes) -> bool:
        if not self._holds(key, token):
            return False
        del self._leased[key]
        return True

    def _next_lease_end(self) -> int | None:
        while self._lease_ends:
            until, key = self._lease_ends[0]
            lease = self._leased.get(key)
            if lease is not None and lease.until == until:
                return until
            heapq.heappop(self._lease_ends)
        return None

    def _bury(self, key: bytes, now: int) -> None:
        record, changes = self._jobs.pop(key[1:]), self._changes.pop(key[1:])
        died_at = now
        while (letter := b"%b@%d" % (key[1:], died_at)) in self._dead:
            died_at += 1
        self._dead[letter] = DeadLetter(letter, died_at, record, changes.packed())

    def _remember(self, nonce: bytes, now: int) -> None:
        self._seen[nonce] = now
        for old, at in list(self._seen.items())[:32]:
            if at <= now - NONCE_TTL_MS:
                del self._seen[old]
