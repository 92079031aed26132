"""Puts a queue to sleep before its last worker goes: see "Sleeping" in docs/protocol.md."""

from __future__ import annotations

import asyncio

from headrace.stores.base import Store
from headrace.topology import PartitionRef

AT_ONCE = 64
"""Partitions that are asked in one round trip."""


async def fall_asleep(store: Store, queue: str, horizon: float) -> bool:
    """Put every partition of every version to sleep; False if one of them needs a worker within ``horizon`` seconds.

    Then some partitions sleep nevertheless, which does no harm: their next job says once that it woke them. Raises the
    errors of the store.
    """
    topology = await store.read_topology(queue)
    if topology is None:
        return False  # unknown is not empty
    refs = [ref for version in topology.versions for ref in topology.refs(version)]
    for start in range(0, len(refs), AT_ONCE):
        if not await _sleep(store, refs[start : start + AT_ONCE], round(horizon * 1000)):
            return False
    return True


async def _sleep(store: Store, refs: list[PartitionRef], horizon_ms: int) -> bool:
    naps = await asyncio.gather(*(store.sleep(ref, horizon_ms) for ref in refs))
    return all(nap.asleep for nap in naps)
