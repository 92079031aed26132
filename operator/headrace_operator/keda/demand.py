"""How many workers a queue wants, for an autoscaler that looks after the rest."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from headrace.errors import StoreUnavailable
from headrace.stores.base import Store
from headrace.topology import Topology
from headrace_operator.keda.options import Options
from headrace_operator.scaling import History, Inputs, Pods, Record, decide
from headrace_operator.scaling.load import max_in_flight, measured
from headrace_operator.scaling.pods import places_of, slots_of
from headrace_operator.scaling.reading import statistics
from headrace_operator.scaling.sleep import fall_asleep

KEEP_SECONDS = 1.0
"""KEDA asks several times for one decision; in between the last answer holds."""
YOUNG_MS = 1_500


class Demand(NamedTuple):
    """``wanted`` workers; ``active``: whether there is anything to do. ``reason``: for the log."""

    wanted: int
    active: bool
    reason: str


@dataclass(slots=True)
class _Memory:
    record: Record | None = None
    demand: Demand | None = None
    at: float = float("-inf")
    options: Options | None = None
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class Demands:
    """Measures the queues of one store. ``clock``: monotonic seconds."""

    def __init__(self, store: Store, clock: Callable[[], float]) -> None:
        self._store = store
        self._clock = clock
        self._memories: dict[str, _Memory] = {}

    async def of(self, options: Options, *, fresh: bool = False) -> Demand:
        """Return the demand of a queue, as of now if ``fresh``, else of the last second.

        A queue without anything to do is put to sleep: its next job says that it woke it. Raises UnknownQueue
        and the errors of the store.
        """
        memory = self._memories.setdefault(options.queue, _Memory())
        async with memory.lock:
            recent = self._clock() - memory.at < KEEP_SECONDS and memory.options == options
            if memory.demand is None or fresh or not recent:
                memory.demand = await self._measure(options, memory)
                memory.at, memory.options = self._clock(), options
            return memory.demand

    async def _measure(self, options: Options, memory: _Memory) -> Demand:
        busy = memory.demand is not None and memory.demand.active
        stats = await statistics(self._store, options.queue, YOUNG_MS if busy else -1)
        topology = await self._store.read_topology(options.queue)
        if stats is None or topology is None:
            raise StoreUnavailable(f"queue {options.queue!r} is being deleted")
        record = Record.from_json(stats.scaling) if memory.record is None else memory.record
        record = replace(record, cold_starts=(options.cold_start_seconds,))
        found = measured(stats, record, keep_warm=options.keep_warm_seconds, template="")
        memory.record = found.record
        rules = replace(
            options.rules,
            held=topology.settings.stop == "hold",
            rate_per_second=topology.settings.rate_per_second,
            max_in_flight=max_in_flight(topology.settings, topology),
        )
        load = found.load.held() if rules.held else found.load
        entries = await self._store.workers(options.queue)
        slots = options.slots or slots_of(entries)
        pods = Pods(0, ready=len(places_of(entries)), slots=slots, cold_start=options.cold_start_seconds)
        decision = decide(Inputs(rules, found.load, pods, History()))
        runs = math.ceil((load.in_flight or 0) / (slots or 1))
        if not load.active:
            return await self._idle(options, topology, decision.reason)
        if topology.settings.mode == "leader_only":
            return Demand(1, True, "only the leader runs jobs; others that stand by are for who scales to decide")
        return Demand(max(decision.replicas, runs if slots else 0), True, decision.reason)

    async def _idle(self, options: Options, topology: Topology, reason: str) -> Demand:
        lead = max(options.cold_start_seconds, options.keep_warm_seconds)
        if await fall_asleep(self._store, topology.queue, lead):
            return Demand(0, False, reason)
        return Demand(1, True, "a job has come in meanwhile")
