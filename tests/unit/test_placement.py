"""A bulk call to a store that does not answer ends soon, and says of each job whether it may be there."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.errors import AccessDenied, OutcomeUnknown, StoreFull, StoreUnavailable
from headrace.lifecycle import promote
from headrace.placement import ROUND_STEPS
from headrace.producer import Enqueued, JobSpec, Producer
from headrace.stores.memory import MemoryStore
from headrace.topology import PartitionRef

QUEUE = "emails"
JOBS = [JobSpec("send", b"x" * 4000)] * 70_000


class Silent(MemoryStore):
    """Enqueues nothing into the partitions of ``broken``; None: into none at all."""

    def __init__(self, broken: set[int] | None, error: StoreUnavailable) -> None:
        super().__init__()
        self.broken = broken
        self.error = error
        self.asked: list[int] = []

    async def enqueue(self, ref: PartitionRef, *args: Any) -> Any:
        self.asked.append(ref.partition)
        if self.broken is None or ref.partition in self.broken:
            raise self.error
        return await super().enqueue(ref, *args)


async def outcomes_on(store: Silent, partitions: int) -> list[Any]:
    await promote(store, QUEUE, 1, partitions)
    return await Producer(store, retry_for=0.01).enqueue_each(QUEUE, JOBS)


@pytest.mark.parametrize(
    ("error", "sent", "unsent"),
    [
        (StoreUnavailable("no answer"), OutcomeUnknown, StoreUnavailable),
        (StoreFull("out of memory"), StoreFull, StoreFull),
        (AccessDenied("wrong password"), AccessDenied, AccessDenied),
    ],
)
async def test_nothing_more_is_sent_to_a_store_that_answered_no_step(
    error: StoreUnavailable, sent: type[Exception], unsent: type[Exception]
) -> None:
    store = Silent(None, error)
    outcomes = await outcomes_on(store, 8)
    assert {type(outcome) for outcome in outcomes} == {sent, unsent}
    assert len(store.asked) <= 3 * ROUND_STEPS  # each of them may be tried again for a moment
    assert any("not sent" in str(outcome) for outcome in outcomes)


async def test_a_partition_that_does_not_answer_holds_up_no_other_one() -> None:
    store = Silent({3}, StoreUnavailable("no answer"))
    outcomes = await outcomes_on(store, 8)
    placed = [outcome for outcome in outcomes if isinstance(outcome, Enqueued)]
    assert {job.partition for job in placed} == {0, 1, 2, 4, 5, 6, 7}
    assert len(placed) > 50_000
    assert {type(outcome) for outcome in outcomes} == {Enqueued, OutcomeUnknown, StoreUnavailable}
    assert store.asked.count(3) < 30
