"""Where a job is, on Redis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, get_args

from headrace.stores.bounds import MAX_ASKED, check_batch
from headrace.stores.protocols.inquiry import MAX_BROWSE, Described, Entry, Index, Live, Statuses
from headrace.stores.redis.access import RedisAccess
from headrace.topology import PartitionRef

NUMBERS: Final[dict[Index, int]] = {name: number for number, name in enumerate(get_args(Index), 1)}
"""How the scripts call the indexes."""


class RedisInquiry(RedisAccess):
    """Implements `headrace.stores.protocols.inquiry.InquirySteps`."""

    async def statuses(self, ref: PartitionRef, ids: Sequence[bytes]) -> Statuses:
        """Say where jobs are, without reading them."""
        check_batch(ids, MAX_ASKED)
        now, newest, flat = await self._run("statuses", ref, *ids)
        while len(flat) < 3 * len(ids):
            # The newest entry of the first answer stays: what finishes meanwhile is newer.
            _, _, more = await self._run("statuses", ref, *ids[len(flat) // 3 :])
            flat += more
        parts = iter(flat)
        live = [
            _live(state, at, token) if state else None for state, at, token in zip(parts, parts, parts, strict=True)
        ]
        return Statuses(now, newest, live)

    async def browse(self, ref: PartitionRef, index: Index, skip: int = 0) -> list[Entry]:
        """Return the next jobs of one index, in its order."""
        flat = iter(await self._run("browse", ref, NUMBERS[index], skip, MAX_BROWSE))
        return [
            Entry(stored_id, _at(at), record, changes, _worker(token))
            for stored_id, at, record, changes, token in zip(*[flat] * 5, strict=True)
        ]

    async def describe(self, ref: PartitionRef, stored_id: bytes) -> Described | None:
        """Return a live job with its record; None if it is not live here."""
        found = await self._run("describe", ref, stored_id)
        return Described(_live(*found[:3]), *found[3:]) if found else None


def _live(state: Any, at: Any, token: bytes) -> Live:
    return Live(state.decode(), _at(at), _worker(token))


def _at(score: Any) -> int | None:
    when = int(float(score))
    return None if when < 0 else when


def _worker(token: bytes) -> str:
    return token.decode(errors="replace").rpartition(":")[0]
