"""What a producer knows of its lost steps: all of them are asked for, however often it had to begin anew."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from headrace.errors import HeadraceError, StoreUnavailable
from headrace.lifecycle import promote
from headrace.placement import MAX_SETTLES
from headrace.producer import Producer
from headrace.stores.base import Accepted, Agreed, Moved, NewJob, Store
from headrace.topology import PartitionRef, Topology
from tests.conformance.steps import QUEUE, Worker, counts, created, ids, ref, settled


class Flaky:
    """A store whose first enqueue is applied and its reply lost, and whose partition then refuses for a while."""

    def __init__(self, store: Store, refusals: int, lost: int = 1) -> None:
        self._store = store
        self.refusals = refusals
        self.lost = lost
        self.calls = 0

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)

    async def enqueue(
        self, at: PartitionRef, partitions: int, nonce: bytes, jobs: Sequence[NewJob], incarnation: int = 1
    ) -> Accepted | Moved:
        self.calls += 1
        if self.calls <= self.lost:
            await self._store.enqueue(at, partitions, nonce, jobs, incarnation)
            claim = await Worker(self._store).claim()
            assert await self._store.ack(ref(), settled(claim)) == []  # it ran and is gone
            raise StoreUnavailable("the reply is lost")
        if self.calls <= self.lost + self.refusals:
            return Moved("resized", None)
        if self.calls == self.lost + self.refusals + 1:
            await promote(self._store, QUEUE, 2, 1)
        return await self._store.enqueue(at, partitions, nonce, jobs, incarnation)

    async def settle(self, at: PartitionRef, topology: Topology) -> Agreed:
        return Agreed("active", 0)


async def test_V5_a_lost_step_is_asked_for_after_others_were_begun(store: Store) -> None:
    await created(store)
    flaky = Flaky(store, refusals=MAX_SETTLES + 2)
    placed = await Producer(flaky).enqueue(QUEUE, "send", id="a")  # type: ignore[arg-type]
    assert (placed.version, placed.partition) == (1, 0)
    assert ids(await Worker(store).claim(at=ref(0, 2))) == []
    assert (await counts(store, ref(0, 2))).live == 0


async def test_T5_a_partition_that_never_agrees_ends_in_an_error_not_in_a_spin(store: Store) -> None:
    await created(store)
    flaky = Flaky(store, refusals=10**9, lost=0)
    with pytest.raises(HeadraceError, match="refuse"):
        await Producer(flaky, retry_for=0.3).enqueue(QUEUE, "send")  # type: ignore[arg-type]
    assert flaky.calls < 300
