"""Reads the statistics of a queue, and has them measured where nobody else did."""

from __future__ import annotations

from headrace.statistics import summarise
from headrace.stores.base import Statistics, Store


async def statistics(store: Store, queue: str, young_ms: int) -> Statistics | None:
    """Return statistics that are at most ``young_ms`` old; None if the queue is being deleted.

    Raises UnknownQueue and the errors of the store.
    """
    found = await store.read_stats(queue)
    if found is None or found.measured_at == 0 or found.age_ms > young_ms:
        return await summarise(store, queue)
    return found
