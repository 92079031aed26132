"""Where a job is, on Redis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headrace.stores.bounds import check_batch
from headrace.stores.protocols.inquiry import Described, Live, Statuses
from headrace.stores.redis.access import RedisAccess
from headrace.topology import PartitionRef


class RedisInquiry(RedisAccess):
    """Implements `headrace.stores.protocols.inquiry.InquirySteps`."""

    async def statuses(self, ref: PartitionRef, ids: Sequence[bytes]) -> Statuses:
        """Say where jobs are, without reading them."""
        check_batch(ids)
        now, newest, flat = await self._run("statuses", ref, *ids)
        parts = iter(flat)
        live = [
            _live(state, at, token) if state else None for state, at, token in zip(parts, parts, parts, strict=True)
        ]
        return Statuses(now, newest, live)

    async def describe(self, ref: PartitionRef, stored_id: bytes) -> Described | None:
        """Return a live job with its record; None if it is not live here."""
        found = await self._run("describe", ref, stored_id)
        return Described(_live(*found[:3]), *found[3:]) if found else None


def _live(state: Any, at: Any, token: bytes) -> Live:
    when = int(float(at))
    worker, _, _ = token.decode(errors="replace").rpartition(":")
    return Live(state.decode(), None if when < 0 else when, worker)
