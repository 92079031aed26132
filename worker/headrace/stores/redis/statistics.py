"""Statistics on Redis: a hash per queue."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from headrace.redis.client import Argument
from headrace.redis.damage import damage_of
from headrace.stores.bounds import HORIZONS
from headrace.stores.protocols.statistics import COUNTERS, Depth, Growth, Statistics, Survey
from headrace.stores.redis.access import RedisAccess
from headrace.stores.redis.scripts import script
from headrace.stores.redis.topology import counts_of
from headrace.topology import PartitionRef


class RedisStatistics(RedisAccess):
    """Implements `headrace.stores.protocols.statistics.StatisticsSteps`."""

    async def survey(self, refs: Sequence[PartitionRef]) -> list[Survey]:
        """Return what statistics need of each partition, each read in one step."""
        surveying = script("survey")
        replies = [self._client.run(surveying, self._keys.of_script("survey", ref), HORIZONS) for ref in refs]
        return [
            Survey(counts_of(sizes, self._keys.partition(ref, "meta")), Growth(*grown), tuple(due))
            for ref, (sizes, grown, due) in zip(refs, await asyncio.gather(*replies), strict=True)
        ]

    async def read_stats(self, queue: str) -> Statistics | None:
        """Return the queue's statistics, one small read; None if there are none."""
        now, flat = await self._queue_script("read_stats", queue)
        pairs = iter(flat)
        stored = {name.decode(errors="replace"): value for name, value in zip(pairs, pairs, strict=True)}
        if not stored:
            return None
        try:
            epoch, depths = depths_of(stored.get("depth", b"{}"))
            at, counters = int(stored.get("at", 0)), {name: int(stored.get(name, 0)) for name in COUNTERS}
        except (ValueError, TypeError, AttributeError) as error:
            key = self._keys.queue(queue, "stats")
            raise damage_of(key, f"holds what cannot be read ({error})") from error
        return Statistics(now, at, epoch, depths, counters, stored.get("scaling", b""))

    async def write_stats(
        self, queue: str, expected_at: int, epoch: int, depths: Mapping[int, Depth], growth: Mapping[int, Growth]
    ) -> bool:
        """Store depths and what counters have grown to; False if others were stored since ``expected_at``."""
        versions = {number: asdict(depth) for number, depth in depths.items()}
        measured = json.dumps({"epoch": epoch, "versions": versions}, separators=(",", ":"))
        grown: list[Argument] = []
        for number, each in growth.items():
            grown += (number, *each)
        return bool(await self._queue_script("write_stats", queue, expected_at, measured, *grown))

    async def write_scaling(self, queue: str, record: bytes) -> bool:
        """Store what whoever scales the workers remembers; False if the queue does not exist."""
        return bool(await self._queue_script("write_scaling", queue, record))

    async def count_work(self, queue: str, counts: Mapping[str, int]) -> bool:
        """Add to the counters of workers; False if the queue does not exist."""
        flat = [part for pair in counts.items() for part in pair]
        return bool(await self._queue_script("count_work", queue, *flat))

    async def _queue_script(self, name: str, queue: str, *args: Argument) -> Any:
        return await self._client.run(script(name), self._keys.of_queue_script(name, queue), args)


def depths_of(stored: bytes) -> tuple[int, dict[int, Depth]]:
    """Return the epoch and the depths of the versions as they are stored.

    Raises ValueError, TypeError or AttributeError for anything else.
    """
    read: dict[str, Any] = json.loads(stored)
    versions = {int(number): _depth(depth) for number, depth in read.get("versions", {}).items()}
    return int(read.get("epoch", 0)), versions


def _depth(stored: dict[str, Any]) -> Depth:
    known = {name: value for name, value in stored.items() if name in Depth.__dataclass_fields__}
    return Depth(**{**known, "due_within": tuple(known.get("due_within", ()))})
