"""Wake-ups: one waiter per queue for hints, one timer per queue for what becomes due."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable

from headrace.errors import DataDamaged
from headrace.maintenance.signs import Signs
from headrace.stores.base import Beat, Store, Tick
from headrace.topology import PartitionRef, Topology
from headrace.worker.claims import Claims
from headrace.worker.hints import QueueHints
from headrace.worker.outage import Backoff, Reachability
from headrace.worker.parking import Unparker
from headrace.worker.policies import Policies
from headrace.worker.recall import Recall

TICK_SECONDS = 5.0


class Waiter:
    """Waits for hints of one queue while the worker has free slots and knows of nothing to do there."""

    def __init__(
        self,
        hints: QueueHints,
        store: Store,
        claims: Claims,
        reachability: Reachability,
        poll_seconds: float,
        rearm: Callable[[], None],
    ) -> None:
        self._hints = hints
        self._store = store
        self._claims = claims
        self._reachability = reachability
        self._poll_seconds = poll_seconds
        self._rearm = rearm

    async def run(self) -> None:
        """Wait for hints until cancelled."""
        backoff = Backoff()
        queue = self._hints.queue
        while True:
            await self._hints.dry.wait()
            await self._claims.wait_for_capacity()
            if not self._hints.dry.is_set():
                continue  # a hint came while all slots were taken
            try:
                hint = await self._store.wait_hint([queue], self._poll_seconds)
                if isinstance(hint, PartitionRef) and (self._claims.capacity() <= 0 or self._hints.paused):
                    # Somebody with a free slot may have it. We keep it in mind too: it is this queue's turn when a
                    # slot of ours becomes free, or a busier queue would always be first.
                    await self._store.hint(hint)
            except Exception as error:
                self._reachability.failed(f"waiting for jobs of queue {queue}", error)
                await asyncio.sleep(backoff.next())
                continue
            backoff.reset()
            self._reachability.answered()
            self._claims.cycled_at = time.monotonic()
            if isinstance(hint, PartitionRef):
                self._claims.hint(hint)
            elif hint is not None:
                self._rearm()


class QueueTimer:
    """Ticks one queue when its next job becomes due, if this worker holds the alarm, and at least every 5 s.

    Every 5 s it also says what ``beat`` tells of this worker, reads the queue's settings, looks for parked jobs whose
    type this worker knows, brings back what a failover has forgotten of the topology and, where hints may be lost,
    looks into one more partition. ``stand_by`` is told what the ticks answer, ``signs`` what it learns.
    """

    def __init__(
        self,
        queue: str,
        worker: str,
        store: Store,
        policies: Policies,
        unparker: Unparker,
        look: Callable[[PartitionRef], None],
        reachability: Reachability,
        beat: Callable[[str], Beat] | None = None,
        stand_by: Callable[[str, Tick], Awaitable[None]] | None = None,
        signs: Signs | None = None,
    ) -> None:
        self._queue = queue
        self._signs = signs or Signs()
        self._outages = reachability.outages
        self._worker = worker
        self._store = store
        self._policies = policies
        self._unparker = unparker
        self._look = look
        self._reachability = reachability
        self._beat = beat
        self._stand_by = stand_by
        self._recall = Recall(store)
        self._at = 0.0
        self._read_at = 0.0
        self._swept = random.randrange(1 << 16)  # workers begin at different partitions
        self._changed = asyncio.Event()

    def rearm(self) -> None:
        """Tick now: an earlier due time appeared."""
        self._signs.noticed()
        self._set(0.0)

    def due_in(self, ms: int) -> None:
        """Tick in ``ms`` milliseconds if nothing earlier is set."""
        self._set(time.monotonic() + ms / 1000)

    def reread(self) -> None:
        """Read the queue's settings now: its topology has changed."""
        self._read_at = 0.0
        self._set(0.0)

    def _set(self, at: float) -> None:
        if at < self._at:
            self._at = at
            self._changed.set()

    async def run(self) -> None:
        """Tick until cancelled."""
        backoff = Backoff()
        while True:
            if (pause := self._at - time.monotonic()) > 0:
                self._changed.clear()
                try:
                    async with asyncio.timeout(pause):
                        await self._changed.wait()
                except TimeoutError:
                    pass
                continue
            now = time.monotonic()
            # Set before the calls: what `rearm`, `due_in` and `reread` say while they are under way must stand.
            self._at = now + TICK_SECONDS
            reading = self._read_at <= now
            beat = self._beat(self._queue) if self._beat is not None and reading else None
            try:
                if reading:
                    self._read_at = now + TICK_SECONDS
                    await self._read()
                    reading = False
                tick = await self._store.tick(self._queue, self._worker, beat)
                if self._stand_by is not None:
                    await self._stand_by(self._queue, tick)
            except Exception as error:
                self._reachability.failed(f"setting the timer of queue {self._queue}", error)
                if reading:
                    self._read_at = 0.0
                self._set(time.monotonic() + backoff.next())
                continue
            backoff.reset()
            self._reachability.answered()
            if self._outages != self._reachability.outages:
                self._outages = self._reachability.outages
                self._signs.came_back()
            if tick.alarm_ms is not None:
                # Never at once again: what is due now has just been turned into hints.
                self.due_in(max(1, tick.alarm_ms))

    async def _read(self) -> None:
        """Do what is done every 5 s beside the tick."""
        try:
            topology = await self._policies.refresh(self._store, self._queue)
            self._signs.read(topology)
            if topology is not None and self._store.hints_may_be_lost:
                self._sweep(topology)
            await self._unparker.look()
            if topology is not None:
                await self._recall.look(topology)
        except DataDamaged as error:  # perhaps of one partition: what becomes due elsewhere must not wait for it
            self._reachability.failed(f"looking after queue {self._queue}", error)

    def _sweep(self, topology: Topology) -> None:
        """Claim from one partition after the other, one each time: the last net for a hint that was lost."""
        refs = [ref for version in sorted(topology.versions) for ref in topology.refs(version)]
        self._swept += 1
        self._look(refs[self._swept % len(refs)])
