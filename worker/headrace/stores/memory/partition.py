"""One partition in memory: its state, its indexes and every transition on them, as pure steps of a given time.

Nothing here waits, locks or reads a clock. The rules are those of the scripts in ``headrace/stores/redis/lua``; the
conformance suite holds both to them.
"""

from __future__ import annotations

import heapq
import struct
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

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
class _Changes:
    """What changed on a job since it was enqueued; kept only for jobs to which something happened."""

    attempt: int = 0
    expiries: int = 0
    last_error: str = ""
    history: deque[tuple[str, int, str, str]] = field(default_factory=lambda: deque(maxlen=HISTORY_ENTRIES))

    def note(self, status: str, now: int, token: bytes, error: str = "") -> None:
        """Append an event to the history; the oldest one goes when it is full."""
        worker, _, _ = token.decode(errors="replace").rpartition(":")
        self.history.append((status, now, worker, error))
        self.last_error = error or self.last_error

    def packed(self) -> bytes:
        """Return the stored form of `headrace.envelope`."""
        facts = [self.attempt, self.expiries, self.last_error, list(self.history)]
        packed: bytes = msgpack.packb(facts, unicode_errors="replace")
        return packed


class _Lease(NamedTuple):
    token: bytes
    until: int


class News(NamedTuple):
    """What steps added: ``ready`` where a lane was empty, and the earliest time of a job that waits."""

    ready: bool
    waits_until: int | None


class Partition:
    """A partition that exists. Keys are lane byte + stored id; ids (keys without their lane) are unique while live."""

    def __init__(self, epoch: int, partitions: int) -> None:
        self.state: PartitionState = "active"
        self.epoch = epoch
        self.partitions = partitions
        self.successor: Topology | None = None
        self._marked_at: int | None = None
        self._jobs: dict[bytes, bytes] = {}
        self._changes: dict[bytes, _Changes] = {}
        self._lanes: dict[bytes, deque[bytes]] = {lane: deque() for lane in _LANES}
        self._scheduled: list[tuple[int, bytes]] = []
        self._retry: list[tuple[int, bytes]] = []
        self._leased: dict[bytes, _Lease] = {}
        # Holds an entry per grant and renewal; those that no longer say when a lease ends are skipped.
        self._lease_ends: list[tuple[int, bytes]] = []
        self._seen: dict[bytes, int] = {}
        self._dead: dict[tuple[bytes, int], tuple[bytes, bytes]] = {}
        self._news = News(False, None)

    # ---- what it holds ---------------------------------------------------------------------------------------------

    @property
    def empty(self) -> bool:
        """Whether it holds neither live jobs nor dead letters."""
        return not self._jobs and not self._dead

    @property
    def ready(self) -> int:
        """Number of ready jobs in all lanes."""
        return sum(len(lane) for lane in self._lanes.values())

    def next_waiting(self) -> int | None:
        """Return the earliest time at which a waiting job becomes ready."""
        return min((heap[0][0] for heap in (self._scheduled, self._retry) if heap), default=None)

    def next_due(self) -> int | None:
        """Return the earliest time at which a waiting or leased job needs attention."""
        times = [at for at in (self.next_waiting(), self._next_lease_end()) if at is not None]
        return min(times, default=None)

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
            next_due_at=self.next_waiting(),
            marked_at=self._marked_at,
            now=now,
        )

    def knows(self, key: bytes, nonce: bytes) -> bool:
        """Whether the id is live here, or the call of ``nonce`` (b"" for none) was applied."""
        return key[1:] in self._jobs or nonce in self._seen

    def take_news(self) -> News:
        """Return what was added since the last call, for the hints."""
        news, self._news = self._news, News(False, None)
        return news

    # ---- its place in the topology ---------------------------------------------------------------------------------

    def mark(self, successor: Topology, now: int) -> None:
        """Stop taking jobs, if it takes any."""
        if self.state == "active":
            self.state, self.epoch = "draining", successor.epoch
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
        if nonce in self._seen:
            return Accepted(frozenset())
        existing = set()
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

    def claim(self, token: bytes, limit: int, until: int) -> list[Claimed]:
        """Lease up to ``limit`` ready jobs under ``token``; nothing if that call was given up by `resume`."""
        claimed: list[Claimed] = []
        if token in self._seen:
            return claimed
        for lane in self._lanes.values():
            while lane and len(claimed) < limit:
                key = lane.popleft()
                self._lease(key, token, until)
                claimed.append(self._claimed(key))
        return claimed

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
        return refused

    def fail(self, failures: Sequence[Failure], now: int) -> list[int]:
        """Send failed jobs to their retry or to the dead letters; the indexes of the refused ones."""
        refused = []
        for index, (key, token, delay_ms, error, status) in enumerate(failures):
            if not self._unlease(key, token):
                refused.append(index)
                continue
            changes = self._changes.setdefault(key[1:], _Changes())
            changes.attempt += 1
            changes.note(status, now, token, error)
            if delay_ms is None:
                self._bury(key, now)
            else:
                self._wait(self._retry, now + delay_ms, key)
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
                self._changes.setdefault(key[1:], _Changes()).note(note, now, token)
            if delay_ms > 0:
                self._wait(self._retry, now + delay_ms, key)
            else:
                heads.append(key)
        for key in reversed(heads):
            self._push(key, head=True)
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
        while recovered < MAX_RECOVER and (ends := self._next_lease_end()) is not None and ends <= now:
            _, key = heapq.heappop(self._lease_ends)
            lease = self._leased.pop(key)
            changes = self._changes.setdefault(key[1:], _Changes())
            changes.expiries += 1
            changes.note("lease expired", now, lease.token)
            self._push(key)
            recovered += 1
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

    # ---- parts -----------------------------------------------------------------------------------------------------

    def _push(self, key: bytes, *, head: bool = False) -> None:
        lane = self._lanes[key[:1]]
        if not lane:
            self._news = self._news._replace(ready=True)
        if head:
            lane.appendleft(key)
        else:
            lane.append(key)

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
        while (key[1:], died_at) in self._dead:
            died_at += 1
        self._dead[key[1:], died_at] = (record, changes.packed())

    def _remember(self, nonce: bytes, now: int) -> None:
        self._seen[nonce] = now
        for old, at in list(self._seen.items())[:32]:
            if at <= now - NONCE_TTL_MS:
                del self._seen[old]
