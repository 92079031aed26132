"""Jobs that wait until a worker knows their type."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from headrace.stores.bounds import MAX_UNPARK
from headrace.topology import PartitionRef


class Unknown(NamedTuple):
    """A leased job of a ``type`` that the worker does not know, to be parked."""

    key: bytes
    token: bytes
    type: str


def no_worker_knows(type: str) -> str:
    """Return the error of a dead letter that was parked."""
    return f"no worker knows type {type}"


class ParkingSteps(Protocol):
    """Steps on parked jobs."""

    async def park(self, ref: PartitionRef, jobs: Sequence[Unknown]) -> list[int]:
        """Let jobs wait by type until a worker knows it; no attempt is burned. Returns refused indexes."""
        ...

    async def unpark(self, ref: PartitionRef, types: Sequence[str]) -> int:
        """Make parked jobs of these types ready, at most 1,000; the number of them."""
        ...

    async def parked(self, ref: PartitionRef) -> dict[str, int]:
        """Return how many jobs wait for each type, at most 100 types."""
        ...

    async def parked_partitions(self, queue: str) -> dict[PartitionRef, int]:
        """Return the partitions of the queue that hold parked jobs, with the time (ms) when one was parked last."""
        ...

    async def bury_parked(self, ref: PartitionRef, type: str, limit: int = MAX_UNPARK) -> int:
        """Make at most ``limit`` (<= 1,000) parked jobs of this type dead letters; the number of them.

        For a type that no worker will know again; it costs the jobs no attempt. Their error is `no_worker_knows`.
        """
        ...
