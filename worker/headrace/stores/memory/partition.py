"""One partition in memory: its state, its indexes and every transition on them, as pure steps of a given time.

Nothing here waits, locks or reads a clock. The rules are those of the scripts in ``headrace/stores/redis``; the
conformance suite holds both to them.
"""

from __future__ import annotations

import heapq
import struct
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import msgpack

from headrace.stores.base import (
    HISTORY_ENTRIES,
    MAX_PROMOTE,
    MAX_RECOVER,
    NONCE_TTL_MS,
    Accepted,
    Claimed,
    Counts,
    Failure,
    Moved,
    NewJob,
    PartitionState,
    Release,
    Settled,
)
from headrace.topology import Topology

_TIMES = struct.Struct(">QQ")
_LANES = (b"0", b"1", b"2")


@dataclass(slots=True)
class Changes:
    """What changed on a job since it was enqueued; exists only for jobs that failed, expired or were handed back."""

    attempt: int = 0
    expiries: int = 0
    last_error: str = ""
    history: deque[tuple[str, int, str, str]] = field(default_factory=lambda: deque(maxlen=HISTORY_ENTRIES))

    def packed(self) -> bytes:
        """Return the stored form of `headrace.envelope`."""
        history = [list(entry) for entry in self.history]
        return bytes(msgpack.packb([self.attempt, self.expiries, self.last_error, history]))


@dataclass(slots=True)
class _Lease:
    token: bytes
    until: int


def worker_of(token: bytes) -> str:
    """Return the worker's name in a token ``worker:seq``."""
    return token.rpartition(b":")[0].decode(errors="replace")


class Partition:
    """A partition that exists. Keys are lane byte + stored id; ids (keys without their lane) are unique while live."""

    def __init__(self, state: PartitionState, epoch: int, partitions: int) -> None:
        self.state: PartitionState = state
        self.epoch = epoch
        self.partitions = partitions
        self.successor: Topology | None = None
        self.marked_at: int | None = None
        self._jobs: dict[bytes, bytes] = {}
        self._changes: dict[bytes, Changes] = {}
        self._lanes: dict[bytes, deque[bytes]] = {lane: deque() for lane in _LANES}
        self._scheduled: list[tuple[int, bytes]] = []
        self._retry: list[tuple[int, bytes]] = []
        self._leased: dict[bytes, _Lease] = {}
        # Holds an entry per grant and renewal; those that no longer say when a lease ends are skipped.
        self._lease_ends: list[tuple[int, bytes]] = []
        self._nonces: dict[bytes, int] = {}
        self._dead: dict[tuple[bytes, int], tuple[bytes, Changes]] = {}

    # ---- what it holds ---------------------------------------------------------------------------------------------

    @property
    def ready(self) -> int:
        """Number of ready jobs in all lanes."""
        return sum(len(lane) for lane in self._lanes.values())

    def next_due(self) -> int | None:
        """Return the earliest time at which a job becomes due or a lease ends."""
        while self._lease_ends:
            until, key = self._lease_ends[0]
            lease = self._leased.get(key)
            if lease is not None and lease.until == until:
                break
            heapq.heappop(self._lease_ends)
        return min((heap[0][0] for heap in (self._scheduled, self._retry, self._lease_ends) if heap), default=None)

    def counts(self, now: int) -> Counts:
        """Return the sizes of all indexes and the facts about the drain."""
        heads = [lane[0] for lane in self._lanes.values() if lane]
        return Counts(
            state=self.state,
            ready=self.ready,
            scheduled=len(self._scheduled),
            retry=len(self._retry),
            leased=len(self._leased),
            parked=0,
            moving=0,
            arrived=0,
            dead=len(self._dead),
            oldest_ready_at=min((_TIMES.unpack_from(self._jobs[key[1:]])[1] for key in heads), default=None),
            next_due_at=self.next_due(),
            marked_at=self.marked_at,
            now=now,
        )

    def knows(self, key: bytes, nonce: bytes) -> bool:
        """Whether the id is live here, or the call of ``nonce`` was applied."""
        return key[1:] in self._jobs or (nonce != b"" and nonce in self._nonces)

    # ---- producing -------------------------------------------------------------------------------------------------

    def enqueue(self, partitions: int, nonce: bytes, jobs: Sequence[NewJob], now: int) -> Accepted | Moved:
        """Insert the jobs whose ids are not live."""
        if self.state == "absent" or self.state != "active":
            return Moved(self.state, self.successor)
        if partitions != self.partitions:
            return Moved("resized", None)
        self._forget_nonces(now)
        if nonce in self._nonces:
            return Accepted(frozenset())
        self._nonces[nonce] = now
        existing = set()
        for index, job in enumerate(jobs):
            job_id = job.key[1:]
            if job_id in self._jobs:
                existing.add(index)
                continue
            run_at = now if job.when == 0 else job.when if job.when > 0 else now - job.when
            self._jobs[job_id] = _TIMES.pack(now, run_at) + job.body
            if run_at <= now:
                self._lanes[job.key[:1]].append(job.key)
            else:
                heapq.heappush(self._scheduled, (run_at, job.key))
        return Accepted(frozenset(existing))

    # ---- working ---------------------------------------------------------------------------------------------------

    def claim(self, token: bytes, limit: int, until: int, now: int) -> list[Claimed]:
        """Lease up to ``limit`` ready jobs under ``token``; nothing if the call was given up by `resume`."""
        self._forget_nonces(now)
        if token in self._nonces:
            return []
        self._nonces[token] = now
        claimed = []
        for lane in self._lanes.values():
            while lane and len(claimed) < limit:
                key = lane.popleft()
                self._lease(key, token, until)
                claimed.append(self._claimed(key))
        return claimed

    def resume(self, token: bytes, until: int, now: int) -> list[Claimed]:
        """Return the jobs leased under ``token``; the call of that token leases nothing from now on."""
        self._forget_nonces(now)
        self._nonces[token] = now
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
        return refused

    def fail(self, failures: Sequence[Failure], now: int) -> list[int]:
        """Send failed jobs to their retry or to the dead letters; the indexes of the refused ones."""
        refused = []
        for index, failure in enumerate(failures):
            key = failure.key
            if not self._unlease(key, failure.token):
                refused.append(index)
                continue
            changes = self._changes.setdefault(key[1:], Changes())
            changes.attempt += 1
            changes.last_error = failure.error
            changes.history.append((failure.status, now, worker_of(failure.token), failure.error))
            if failure.delay_ms is not None:
                heapq.heappush(self._retry, (now + failure.delay_ms, key))
                continue
            self._dead[key, now] = (self._jobs.pop(key[1:]), self._changes.pop(key[1:]))
        return refused

    def release(self, releases: Sequence[Release], now: int) -> list[int]:
        """Put jobs back to the head of their lane, in the order given, or let them wait; the refused indexes."""
        refused = []
        heads: list[bytes] = []
        for index, (key, token, delay_ms, note) in enumerate(releases):
            if not self._unlease(key, token):
                refused.append(index)
                continue
            if note:
                changes = self._changes.setdefault(key[1:], Changes())
                changes.history.append(("released", now, worker_of(token), note))
            if delay_ms > 0:
                heapq.heappush(self._scheduled, (now + delay_ms, key))
            else:
                heads.append(key)
        for key in reversed(heads):
            self._lanes[key[:1]].appendleft(key)
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
        """Return at most MAX_RECOVER jobs with expired leases to ready; the number of them."""
        recovered = 0
        while recovered < MAX_RECOVER:
            self.next_due()  # drops what is out of date from the top of the heap
            if not self._lease_ends or self._lease_ends[0][0] > now:
                break
            _, key = heapq.heappop(self._lease_ends)
            lease = self._leased.pop(key)
            changes = self._changes.setdefault(key[1:], Changes())
            changes.expiries += 1
            changes.history.append(("expired", now, worker_of(lease.token), "lease expired"))
            self._lanes[key[:1]].append(key)
            recovered += 1
        return recovered

    def promote_due(self, now: int) -> int:
        """Move at most MAX_PROMOTE due jobs to ready; the number of them."""
        promoted = 0
        for heap in (self._scheduled, self._retry):
            while heap and heap[0][0] <= now and promoted < MAX_PROMOTE:
                _, key = heapq.heappop(heap)
                self._lanes[key[:1]].append(key)
                promoted += 1
        return promoted

    # ---- parts -----------------------------------------------------------------------------------------------------

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

    def _forget_nonces(self, now: int) -> None:
        for nonce, at in list(self._nonces.items()):
            if at >= now - NONCE_TTL_MS:
                break
            del self._nonces[nonce]
