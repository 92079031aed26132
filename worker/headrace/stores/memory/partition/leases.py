"""The leases of one partition in memory, and when they end."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import NamedTuple


class Lease(NamedTuple):
    """The token of the claim that holds a job, and the time (ms) until which it does."""

    token: bytes
    until: int


class Leases:
    """Key of a leased job -> its lease."""

    def __init__(self) -> None:
        self._leases: dict[bytes, Lease] = {}
        # Holds an entry per grant and renewal; those that no longer say when a lease ends are skipped.
        self._ends: list[tuple[int, bytes]] = []

    def __len__(self) -> int:
        return len(self._leases)

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._leases)

    def remove(self, key: bytes) -> None:
        """End a lease, whoever holds it."""
        del self._leases[key]

    def holds(self, key: bytes, token: bytes) -> bool:
        """Whether the job is leased under this token."""
        lease = self._leases.get(key)
        return lease is not None and lease.token == token

    def of(self, key: bytes) -> Lease | None:
        """Return the lease of a job, None if it is not leased."""
        return self._leases.get(key)

    def under(self, token: bytes) -> list[bytes]:
        """Return the keys of the jobs leased under a token."""
        return [key for key, lease in self._leases.items() if lease.token == token]

    def grant(self, key: bytes, token: bytes, until: int) -> None:
        """Lease a job, or prolong its lease."""
        self._leases[key] = Lease(token, until)
        heapq.heappush(self._ends, (until, key))

    def end(self, key: bytes, token: bytes) -> bool:
        """End a lease; False if the job is not leased under this token."""
        if not self.holds(key, token):
            return False
        del self._leases[key]
        return True

    def next_end(self) -> int | None:
        """Return the time (ms) at which a lease expires next."""
        while self._ends:
            until, key = self._ends[0]
            lease = self._leases.get(key)
            if lease is not None and lease.until == until:
                return until
            heapq.heappop(self._ends)
        return None

    def take_expired(self, now: int) -> tuple[bytes, Lease] | None:
        """End the lease that expired first; the job's key with it, None if none has expired."""
        until = self.next_end()
        if until is None or until > now:
            return None
        _, key = heapq.heappop(self._ends)
        return key, self._leases.pop(key)
