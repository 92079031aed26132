"""Every script of the store at its largest batch, in a queue that holds a great many jobs that are not concerned."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

from bench.ours.queue import QUEUE, TYPE
from headrace.envelope import encode_body, encode_result
from headrace.ids import encode_id
from headrace.lifecycle import promote
from headrace.schedules.mark import ScheduleMark
from headrace.settings import QueueSettings, Retention
from headrace.stores.base import (
    MAX_ASIDE,
    MAX_ASKED,
    MAX_BATCH,
    MAX_CLAIM,
    MAX_ENQUEUE,
    MAX_FUSED,
    MAX_PROMOTE,
    MAX_RECOVER,
    MAX_SETTLE,
    MAX_STEP_BYTES,
    MAX_WITHDRAW,
    Failure,
    Fence,
    NewJob,
    Once,
    ParkedLimits,
    Release,
    Report,
    Settled,
    Sought,
    Success,
    Unknown,
)
from headrace.stores.redis import RedisStore
from headrace.topology import PartitionRef, Topology

LONG_MS = 86_400_000
OLD, NEW = PartitionRef(QUEUE, 1, 0), PartitionRef(QUEUE, 2, 0)
PAYLOAD = "x" * 128
LEADER = Fence(1, "leader")
LARGE = "enqueue: one job of 1 MB, which goes alone"
LARGE_JOBS = 20

Clock = Callable[[], Awaitable[float]]


class Walk:
    """Takes jobs through every script. ``clock``: seconds that the server has worked so far."""

    def __init__(self, store: RedisStore, clock: Clock) -> None:
        self.store = store
        self.samples: dict[str, list[float]] = defaultdict(list)
        self._clock = clock
        self._numbers = count()
        self._seq = count(1)
        self._body = encode_body(TYPE, PAYLOAD)
        self._topology: Topology

    @asynccontextmanager
    async def _timed(self, what: str) -> AsyncIterator[None]:
        """Note how long the server works on what is done within."""
        before = await self._clock()
        yield
        self.samples[what].append(await self._clock() - before)

    @asynccontextmanager
    async def _each_timed(self, what: str) -> AsyncIterator[None]:
        """Note how long the server works on each script that a step within takes: a large batch goes in parts."""
        client, run = self.store._client, self.store._client.run

        async def timed(*args: Any, **options: Any) -> Any:
            async with self._timed(what):
                return await run(*args, **options)

        client.run = timed  # type: ignore[method-assign]
        try:
            yield
        finally:
            del client.run

    # ---- the jobs that are not concerned -----------------------------------------------------------------------------

    async def fill(self, scheduled: int, finished: int) -> None:
        """Schedule jobs for tomorrow in both versions, and finish some in the newer one."""
        kept = Retention(done_count=100_000_000, done_bytes=1 << 40, dead_count=100_000_000)
        await promote(self.store, QUEUE, 1, 1, settings=QueueSettings(retention=kept))
        await self._add(OLD, max(1000, scheduled // 10), -LONG_MS)
        self._topology = await promote(self.store, QUEUE, 2, 1)
        await self._add(NEW, scheduled, -LONG_MS)
        for start in range(0, finished, MAX_ENQUEUE):
            leases = await self._leased(min(MAX_ENQUEUE, finished - start))
            await self.store.ack(NEW, leases, self._successes(leases))

    def _keys(self, number: int) -> list[bytes]:
        return [b"1" + encode_id(f"j{next(self._numbers)}") for _ in range(number)]

    async def _add(self, at: PartitionRef, number: int, when: int = 0) -> list[bytes]:
        added = self._keys(number)
        for start in range(0, number, MAX_ENQUEUE):
            await self._enqueue(at, added[start : start + MAX_ENQUEUE], when, self._body)
        return added

    async def _enqueue(self, at: PartitionRef, keys: list[bytes], when: int, body: bytes) -> None:
        await self.store.enqueue(at, 1, b"%d" % next(self._numbers), [NewJob(key, when, body) for key in keys])

    async def _claim(self, limit: int, lease_ms: int = LONG_MS, acks: list[Settled] | None = None) -> list[Settled]:
        claim = await self.store.claim(
            NEW, "w", next(self._seq), limit, lease_ms, acks or [], suspects=MAX_CLAIM, successes=self._successes(acks)
        )
        return [Settled(job.key, claim.token) for job in claim.jobs]

    async def _leased(self, number: int, lease_ms: int = LONG_MS) -> list[Settled]:
        """Enqueue so many jobs and claim them."""
        await self._add(NEW, number)
        leases: list[Settled] = []
        while len(leases) < number:
            leases += await self._claim(min(MAX_CLAIM, number - len(leases)), lease_ms)
        return leases

    @staticmethod
    def _successes(leases: list[Settled] | None) -> list[Success]:
        return [Success(TYPE, 0, encode_result(None)) for _ in leases or ()]

    # ---- the scripts -------------------------------------------------------------------------------------------------

    async def round(self) -> None:
        """Run every script once or more; the jobs of the round are gone afterwards, or wait for tomorrow."""
        await self._producing()
        await self._claiming()
        await self._settling()
        await self._histories()
        await self._parking()
        await self._removing()
        await self._schedules()
        await self._dead_letters()
        await self._looking()
        await self._moving()
        await self._audit()
        await self._large()

    async def _producing(self) -> None:
        async with self._timed(f"enqueue: {MAX_ENQUEUE} jobs"):
            await self._enqueue(NEW, self._keys(MAX_ENQUEUE), 0, self._body)
        async with self._timed(f"enqueue: {MAX_ENQUEUE} jobs for later"):
            await self._enqueue(NEW, self._keys(MAX_ENQUEUE), -LONG_MS, self._body)
        body = encode_body(TYPE, "x" * (MAX_STEP_BYTES // MAX_ENQUEUE - 64))
        async with self._timed(f"enqueue: {MAX_ENQUEUE} jobs, {MAX_STEP_BYTES >> 10} KiB"):
            await self._enqueue(NEW, self._keys(MAX_ENQUEUE), 0, body)
        async with self._timed(LARGE):
            await self._enqueue(NEW, self._keys(1), 0, encode_body(TYPE, "x" * 1_000_000))
        async with self._timed(f"probe: {MAX_BATCH:,} ids"):
            await self.store.probe(OLD, self._topology, [(key, b"nonce") for key in self._keys(MAX_BATCH)])
        held: list[Settled] = []
        while jobs := await self._claim(MAX_CLAIM):
            held += jobs
        for start in range(0, len(held), MAX_BATCH):
            await self.store.ack(NEW, held[start : start + MAX_BATCH])

    async def _claiming(self) -> None:
        await self._add(NEW, MAX_CLAIM)
        async with self._timed(f"claim: {MAX_CLAIM} jobs"):
            held = await self._claim(MAX_CLAIM)
        await self.store.ack(NEW, held)
        held = await self._leased(MAX_FUSED)
        expired = await self._leased(MAX_RECOVER)
        await self._add(NEW, MAX_PROMOTE, -1)
        await self._add(NEW, MAX_CLAIM)
        await self.store.renew(NEW, expired, 1)
        await asyncio.sleep(0.005)
        done = f"{MAX_FUSED} acknowledged, {MAX_RECOVER} taken back, {MAX_PROMOTE:,} promoted"
        async with self._timed(f"claim: {MAX_CLAIM} jobs, {done}"):
            held = await self._claim(MAX_CLAIM, acks=held)
        await self.store.ack(NEW, held)
        await self._empty()
        await self._add(NEW, MAX_PROMOTE, -1)
        await asyncio.sleep(0.005)
        async with self._timed(f"promote_due: {MAX_PROMOTE:,} jobs"):
            await self.store.promote_due(NEW)
        await self._empty()
        await self._leased(MAX_RECOVER, 1)
        await asyncio.sleep(0.005)
        async with self._timed(f"recover: {MAX_RECOVER} jobs"):
            await self.store.recover(NEW)
        await self._empty()
        leases = await self._leased(1100)
        seq = int(leases[0].token.rpartition(b":")[2])
        async with self._timed("resume: 1,100 jobs in flight"):
            await self.store.resume(NEW, "w", seq, LONG_MS)
        for start in range(0, len(leases), MAX_BATCH):
            await self.store.ack(NEW, leases[start : start + MAX_BATCH])

    async def _empty(self) -> None:
        """Run what is ready."""
        while True:
            claim = await self.store.claim(
                NEW, "w", next(self._seq), MAX_CLAIM, LONG_MS, suspects=MAX_CLAIM, alone=True
            )
            if not claim.jobs:
                return
            await self.store.ack(NEW, [Settled(job.key, claim.token) for job in claim.jobs])

    async def _settling(self) -> None:
        leases = await self._leased(MAX_BATCH)
        async with self._timed(f"renew: {MAX_BATCH:,} leases"):
            await self.store.renew(NEW, leases, LONG_MS)
        some = leases[:MAX_SETTLE]
        async with self._timed(f"renew: {MAX_SETTLE} leases, each reports"):
            await self.store.renew(NEW, some, LONG_MS, [Report(n, 0.5, "half") for n in range(len(some))])
        async with self._timed(f"ack: {MAX_BATCH:,} jobs, kept"):
            await self.store.ack(NEW, leases, self._successes(leases))
        leases = await self._leased(MAX_SETTLE)
        async with self._timed(f"release: {MAX_SETTLE} jobs with a note"):
            await self.store.release(NEW, [Release(*each, 0, "stopped") for each in leases])
        await self._empty()
        leases = await self._leased(MAX_SETTLE)
        async with self._timed(f"fail: {MAX_SETTLE} jobs"):
            await self.store.fail(NEW, [Failure(*each, 1, "boom") for each in leases])
        await asyncio.sleep(0.005)
        await self._empty()

    async def _parking(self) -> None:
        leases = await self._leased(MAX_SETTLE)
        async with self._timed(f"park: {MAX_SETTLE} jobs"):
            await self.store.park(NEW, [Unknown(*each, TYPE) for each in leases])
        async with self._timed(f"unpark: {MAX_SETTLE} jobs"):
            await self.store.unpark(NEW, [TYPE])
        leases = []
        while jobs := await self._claim(MAX_CLAIM):
            leases += jobs
        await self.store.park(NEW, [Unknown(*each, TYPE) for each in leases])
        async with self._timed(f"bury_parked: {MAX_SETTLE} jobs"):
            await self.store.bury_parked(NEW, TYPE)

        leases = await self._leased(MAX_SETTLE)
        await self.store.park(NEW, [Unknown(*each, TYPE) for each in leases])
        async with self._timed(f"trim_parked: {MAX_SETTLE} jobs"):
            await self.store.trim_parked(NEW, TYPE, ParkedLimits(0, LONG_MS), fence=LEADER)

    async def _histories(self) -> None:
        """Jobs with as much history as a queue keeps by default, of short and of the longest errors."""
        for error in ("boom", "x" * 2000):
            told = f"{MAX_SETTLE} jobs that failed 20 times with {len(error)} characters"
            await self._add(NEW, MAX_SETTLE)
            for _ in range(20):
                await self.store.release(NEW, [Release(*each, 0, error) for each in await self._all()])
            async with self._each_timed(f"fail: {told}"):
                await self.store.fail(NEW, [Failure(*each, 1, error) for each in await self._all()])
            await asyncio.sleep(0.005)
            async with self._each_timed(f"release: {told}"):
                await self.store.release(NEW, [Release(*each, 0, "stopped") for each in await self._all()])
            leases = await self._all()
            async with self._each_timed(f"renew: {told}, each reports"):
                await self.store.renew(NEW, leases, 1, [Report(n, 0.5, "half") for n in range(len(leases))])
            await asyncio.sleep(0.005)
            async with self._each_timed(f"recover: {told}"):
                while await self.store.recover(NEW):
                    pass
            leases = await self._all()
            async with self._each_timed(f"park: {told}, suspects"):
                await self.store.park(NEW, [Unknown(*each, TYPE) for each in leases])
            async with self._each_timed(f"bury_parked: {told}"):
                while await self.store.bury_parked(NEW, TYPE):
                    pass
            while letters := await self.store.dead_letters(NEW):
                await self.store.remove_dead(NEW, [each.letter for each in letters])

    async def _all(self) -> list[Settled]:
        """Claim what is ready."""
        leases: list[Settled] = []
        while jobs := await self._claim(MAX_CLAIM):
            leases += jobs
        return leases

    async def _removing(self) -> None:
        """Withdraw, purge and browse, beside ready jobs that are not concerned."""
        await self._add(NEW, MAX_BATCH)
        for where, when in (("scheduled", -LONG_MS), ("ready at the end of a list", 0)):
            ids = [key[1:] for key in await self._add(NEW, MAX_WITHDRAW, when)]
            async with self._timed(f"withdraw: {MAX_WITHDRAW} jobs, {where}"):
                await self.store.withdraw(NEW, ids, running=True)
        ids = [key[1:] for key in await self._add(NEW, MAX_WITHDRAW)]
        await self._add(NEW, MAX_BATCH)
        async with self._timed(f"withdraw: {MAX_WITHDRAW} jobs, ready in the middle of a list"):
            await self.store.withdraw(NEW, ids, running=True)
        for index in ("r1", "scheduled"):
            async with self._timed(f"browse: 100 jobs, {index}"):
                await self.store.browse(NEW, index)
        last = [key[1:] for key in await self._add(NEW, 100)]
        async with self._timed("purge: 2,000 jobs of which one is looked for"):
            await self.store.purge(NEW, "r1", Sought(stored_id=b"nobody"), 0)
        async with self._timed(f"purge: {len(last)} jobs, r1"):
            await self.store.purge(NEW, "r1", Sought(1 << 50, TYPE), 0)
        async with self._timed("purge: 100 jobs, scheduled"):
            await self.store.purge(NEW, "scheduled", Sought(1 << 50, TYPE), 0)
        await self._add(NEW, 100, -LONG_MS)
        await self._empty()
        leases = await self._leased(MAX_WITHDRAW)
        async with self._timed(f"withdraw: {MAX_WITHDRAW} jobs, leased"):
            await self.store.withdraw(NEW, [each.key[1:] for each in leases], running=True)
        leases = await self._leased(MAX_WITHDRAW)
        await self.store.park(NEW, [Unknown(*each, TYPE) for each in leases])
        async with self._timed(f"statuses: {len(leases)} ids, parked"):
            await self.store.statuses(NEW, [each.key[1:] for each in leases])
        async with self._timed(f"withdraw: {MAX_WITHDRAW} jobs, parked"):
            await self.store.withdraw(NEW, [each.key[1:] for each in leases], running=True)

    async def _schedules(self) -> None:
        """A hundred schedules in a queue."""
        known = (await self.store.read_schedules(QUEUE)).marks
        for n in range(100):
            before, mark = known.get(f"nightly-{n}"), ScheduleMark(next(self._numbers), "0 3 * * * Europe/Berlin")
            async with self._timed("note_schedule"):
                await self.store.note_schedule(QUEUE, LEADER, f"nightly-{n}", before, mark)
        async with self._timed("read_schedules: 100 schedules"):
            noted = (await self.store.read_schedules(QUEUE)).marks
        for n in range(100):
            async with self._timed("forget_schedule"):
                await self.store.forget_schedule(QUEUE, f"nightly-{n}", noted[f"nightly-{n}"])
        jobs = [NewJob(key, 0, self._body) for key in self._keys(MAX_ENQUEUE)]
        once = Once("nightly", next(self._numbers))
        async with self._timed(f"enqueue: {MAX_ENQUEUE} jobs, once"):
            await self.store.enqueue(NEW, 1, b"%d" % next(self._numbers), jobs, once=once)
        async with self._timed(f"enqueue: {MAX_ENQUEUE} jobs, once, again"):
            await self.store.enqueue(NEW, 1, b"%d" % next(self._numbers), jobs, once=once)
        await self._empty()

    async def _dead_letters(self) -> None:
        leases = await self._leased(MAX_SETTLE)
        async with self._timed(f"fail: {MAX_SETTLE} jobs for good"):
            await self.store.fail(NEW, [Failure(*each, None, "boom") for each in leases])
        async with self._timed(f"dead_letters: {MAX_SETTLE} letters"):
            letters = await self.store.dead_letters(NEW, limit=MAX_SETTLE)
        async with self._timed(f"find_dead: {MAX_ASKED} ids"):
            await self.store.find_dead(NEW, [b"none-%d" % n for n in range(MAX_ASKED)])
        async with self._timed(f"adopt_dead: {len(letters)} letters"):
            await self.store.adopt_dead(NEW, letters)
        async with self._timed(f"remove_dead: {len(letters)} letters"):
            await self.store.remove_dead(NEW, [each.letter for each in letters])

    async def _looking(self) -> None:
        ids = [key[1:] for key in await self._add(NEW, MAX_ASKED)]
        async with self._timed(f"statuses: {MAX_ASKED} ids"):
            await self.store.statuses(NEW, ids)
        async with self._timed("finished: 1,000 jobs"):
            await self.store.finished(NEW, limit=1000)
        for asked in (8, MAX_ASKED):
            async with self._timed(f"find_finished: {asked} ids"):
                await self.store.find_finished(NEW, [b"none-%d" % n for n in range(asked)])
        for name, look in (
            ("describe", self.store.describe(NEW, ids[0])),
            ("counts", self.store.counts([NEW])),
            ("survey", self.store.survey([NEW])),
            ("sleep", self.store.sleep(NEW, 1000)),
            ("tick", self.store.tick(QUEUE, "w")),
        ):
            async with self._timed(name):
                await look
        async with self._timed("trim"):
            await self.store.trim(NEW)
        await self._empty()

    async def _moving(self) -> None:
        async with self._timed(f"set_aside: {MAX_ASIDE} jobs"):
            jobs = await self.store.set_aside(OLD, LEADER, 2, MAX_ASIDE)
        async with self._timed(f"adopt: {MAX_ASIDE} jobs"):
            await self.store.adopt(NEW, 1, LEADER, OLD, jobs)
        ids = [job.stored_id for job in jobs]
        async with self._timed(f"let_go: {MAX_ASIDE} jobs"):
            await self.store.let_go(OLD, LEADER, ids)
        async with self._timed(f"forget_arrived: {MAX_ASIDE} jobs"):
            await self.store.forget_arrived(NEW, LEADER, OLD, ids)
        async with self._timed(f"bury_waiting: {MAX_ASIDE} jobs"):
            await self.store.bury_waiting(OLD, "drained too long", MAX_ASIDE)

    async def _audit(self) -> None:
        """The steps of an audit one by one, as far as the first ten."""
        before, steps = await self._clock(), count(1)

        async def pause() -> None:
            nonlocal before
            now = await self._clock()
            self.samples["audit: one step"].append(now - before)
            before = await self._clock()
            if next(steps) == 10:
                raise _EnoughError

        try:
            await self.store.audit_partition(NEW, repair=False, pause=pause)
        except _EnoughError:
            return

    async def _large(self) -> None:
        """Jobs of 100 KB: as many as one step deals with, whatever it is asked for."""
        await self._empty()
        keys, body = self._keys(LARGE_JOBS), encode_body(TYPE, "x" * 100_000)
        for key in keys:
            await self._enqueue(NEW, [key], 0, body)
        async with self._timed(f"enqueue: {LARGE_JOBS} ids of jobs of 100 KB that live"):
            await self._enqueue(NEW, keys, 0, self._body)
        leases: list[Settled] = []
        async with self._each_timed(f"claim: {MAX_CLAIM} jobs wanted, of 100 KB each"):
            while jobs := await self._claim(MAX_CLAIM):
                leases += jobs
        await self.store.park(NEW, [Unknown(*each, TYPE) for each in leases])
        async with self._each_timed(f"statuses: {LARGE_JOBS} ids, parked, of 100 KB each"):
            await self.store.statuses(NEW, [key[1:] for key in keys])
        await self.store.unpark(NEW, [TYPE])
        await self._empty()


class _EnoughError(Exception):
    """So many steps say enough."""
