"""What --repair gives to a partition or a queue is what counts at that moment, whatever happens beside a long audit."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress

import msgpack
import pytest

from headrace.audit import audit
from headrace.errors import DataDamaged
from headrace.finished import PAGE_JOBS, carry_over
from headrace.lifecycle import complete, configure, promote
from headrace.pausing import pause_queue
from headrace.producer import Producer
from headrace.settings import QueueSettings, Retention
from headrace.stores.base import (
    Agreed,
    DeadLetter,
    FinishedBatch,
    FinishedJob,
    PartitionAudit,
    Pause,
    Success,
)
from headrace.stores.redis import RedisStore
from headrace.topology import PartitionRef, Topology
from tests.conformance.steps import QUEUE, Worker, created, enqueue, ref, settled
from tests.integration.damage.hand import JUNK
from tests.services.redis import RedisServer


class Beside(RedisStore):
    """Lets somebody do something just before an audit comes to a partition, and counts what is settled."""

    before: tuple[PartitionRef, Callable[[], Awaitable[object]]] | None = None

    stumbles: PartitionRef | None = None

    def __init__(self, url: str, prefix: str) -> None:
        super().__init__(url, prefix=prefix)
        self.settled: list[str] = []

    async def audit_partition(self, ref: PartitionRef, *, repair: bool, pause: Pause) -> PartitionAudit:
        if self.before is not None and self.before[0] == ref:
            (_, happen), self.before = self.before, None
            await happen()
        return await super().audit_partition(ref, repair=repair, pause=pause)

    async def _audit_step(self, ref: PartitionRef, name: str, *arguments: bytes | str | int) -> object:
        if ref == self.stumbles:
            raise DataDamaged("", "holds what cannot be read (ERR attempt to index a number value)")
        return await super()._audit_step(ref, name, *arguments)

    async def settle(self, ref: PartitionRef, topology: Topology) -> Agreed:
        self.settled.append(ref.label)
        return await super().settle(ref, topology)


Hand = Callable[..., object]


@pytest.fixture
async def store(redis_server: RedisServer, prefix: str) -> AsyncIterator[Beside]:
    store = Beside(redis_server.url, prefix)
    yield store
    await store.close()


@pytest.fixture
def meta(redis_server: RedisServer, prefix: str) -> Hand:
    """Somebody with redis-cli: (command, number of the partition of v1, arguments)."""

    def run(command: str, partition: int, *arguments: object) -> object:
        with redis_server.client() as client:
            return client.execute_command(command, f"{{{prefix}:{QUEUE}:1:{partition}}}:meta", *arguments)

    return run


async def test_J10_several_settings_that_were_replaced_are_made_anew_by_one_repair(store: Beside, meta: Hand) -> None:
    await created(store, 3)
    for number in (0, 2):
        meta("SET", number, "x")
    result = await audit(store, QUEUE, load=1.0, repair=True)
    assert (result.open, result.unproven) == ([], [])
    assert [meta("HGET", number, "s") for number in range(3)] == [b"A", b"A", b"A"]
    assert (await audit(store, QUEUE, load=1.0)).leftovers == []


async def test_J10_each_damaged_partition_is_settled_once_and_no_other(store: Beside, meta: Hand) -> None:
    await created(store, 8)
    store.settled.clear()
    for number in (1, 3, 5):
        meta("HSET", number, "cap", JUNK)
    meta("DEL", 6)
    assert (await audit(store, QUEUE, load=1.0, repair=True)).open == []
    assert store.settled == ["1:1", "1:3", "1:5", "1:6"]


async def test_J10_a_queue_paused_beside_a_repair_is_paused_in_the_mended_partition(store: Beside, meta: Hand) -> None:
    await created(store, 2)
    meta("HSET", 1, "e", JUNK)

    async def paused() -> None:
        with suppress(DataDamaged):  # of the partition that is about to be mended
            await pause_queue(store, QUEUE)

    store.before = (ref(1), paused)
    assert (await audit(store, QUEUE, load=1.0, repair=True)).open == []
    assert [meta("HGET", number, "hold") for number in range(2)] == [b"1", b"1"]


async def test_J10_a_version_superseded_beside_a_repair_drains_in_the_mended_partition(
    store: Beside, meta: Hand
) -> None:
    await created(store, 3)
    meta("HSET", 1, "s", JUNK)
    meta("DEL", 2)

    async def superseded() -> None:
        with suppress(DataDamaged):
            await promote(store, QUEUE, 2, 1)

    store.before = (ref(1), superseded)
    await audit(store, QUEUE, load=1.0, repair=True)
    assert [meta("HGET", number, "s") for number in range(3)] == [b"D", b"D", b"D"]
    assert (await audit(store, QUEUE, load=1.0)).open == []


async def test_J19_finished_jobs_are_found_behind_an_entry_that_unpacks_to_a_number(
    store: Beside, redis_server: RedisServer, prefix: str
) -> None:
    topology = await created(store)
    await configure(store, QUEUE, QueueSettings(retention=Retention()))
    now = (await store.counts([ref()]))[0].now
    batch = FinishedBatch(b"", (FinishedJob(b"job", "send", 0, b"", now, "w"),))
    assert await store.adopt_finished(ref(), [batch], topology.incarnation) == 1
    with redis_server.client() as client:
        client.xadd(f"{{{prefix}:{QUEUE}:1:0}}:done", {"t": "1", "w": "w", "n": "1", "d": b"\x07\xa3job"})
    for ids in ([b"job"], [b"job", *(b"%d" % n for n in range(10))]):
        assert (await store.find_finished(ref(), ids)).jobs.keys() == {b"job"}


async def test_M15_J19_what_finished_is_carried_over_past_pages_that_cannot_be_read(
    store: Beside, redis_server: RedisServer, prefix: str, caplog: pytest.LogCaptureFixture
) -> None:
    await promote(store, QUEUE, 1, 1, settings=QueueSettings(retention=Retention()))
    await enqueue(store, "kept")
    assert await store.ack(ref(), settled(await Worker(store).claim()), [Success("send", 0)]) == []
    done = f"{{{prefix}:{QUEUE}:1:0}}:done"
    with redis_server.client() as client, client.pipeline() as pipe:
        for _ in range(2 * PAGE_JOBS + 1):
            pipe.xadd(done, {"t": "1", "w": "w", "n": "1", "d": JUNK})
        pipe.execute()
        topology = await promote(store, QUEUE, 2, 1)
        await carry_over(store, topology, 1)
        (status,) = (await Producer(store).statuses(QUEUE, ["kept"])).values()
        assert (status.state, status.version) == ("succeeded", 2)
        assert client.xlen(done) == 2 * PAGE_JOBS + 1  # what cannot be read stays as long as its partition
    told = [line.getMessage() for line in caplog.records if line.name == "headrace.finished"]
    assert told == [
        f"queue {QUEUE}: {2 * PAGE_JOBS + 1} entries among the finished jobs of partition 1:0 cannot be read, "
        "and go with version 1"
    ]
    await complete(store, QUEUE, 1, client_retry_ms=0)


async def test_V10_a_letter_that_cannot_be_read_is_another_one(
    store: Beside, redis_server: RedisServer, prefix: str
) -> None:
    await created(store)
    with redis_server.client() as client:
        for letter, packed in ((b"x@1000", b"\x07"), (b"x@1001", JUNK)):
            client.hset(f"{{{prefix}:{QUEUE}:1:0}}:letters", letter, packed)
            client.zadd(f"{{{prefix}:{QUEUE}:1:0}}:dead", {letter: int(letter[2:])})
    assert await store.adopt_dead(ref(), [DeadLetter(b"x@1000", 1000, b"of v1", b"")])
    found = [each for each in await store.dead_letters(ref()) if each.record]
    assert [(each.letter, each.record) for each in found] == [(b"x@1002", b"of v1")]


async def test_J10_a_partition_that_no_step_gets_through_is_named_though_its_kinds_are_right(store: Beside) -> None:
    await created(store, 2)
    store.stumbles = ref(1)
    result = await audit(store, QUEUE, load=1.0)
    assert [(label, each.kind, each.key) for label, each in result.open] == [("1:1", "contents unreadable", "*")]
    assert b"cannot be read (ERR attempt" in result.open[0].leftover.member
    assert result.unproven == ["1:1"]


async def test_J10_a_list_of_queues_that_was_replaced_lists_all_of_them_again(
    store: Beside, redis_server: RedisServer, prefix: str
) -> None:
    for queue in (QUEUE, "other", "third"):
        await promote(store, queue, 1, 1)
    with redis_server.client() as client:
        client.delete(f"{{{prefix}}}:queues")
        client.set(f"{{{prefix}}}:queues", "x")
        client.hset(f"{{{prefix}:stray:1:0}}:jobs", "x", "x")  # a partition of a queue that nobody knows
    assert (await audit(store, QUEUE, load=1.0, repair=True)).open == []
    assert sorted(await store.queues()) == sorted([QUEUE, "other", "third"])


@pytest.mark.parametrize("newest_first", [True, False])
async def test_J19_foreign_entries_among_finished_jobs_are_passed_in_bounded_steps(
    store: Beside, redis_server: RedisServer, prefix: str, newest_first: bool
) -> None:
    topology = await created(store)
    await configure(store, QUEUE, QueueSettings(retention=Retention()))
    done = f"{{{prefix}:{QUEUE}:1:0}}:done"
    with redis_server.client() as client, client.pipeline() as pipe:
        first = FinishedBatch(b"", (FinishedJob(b"first", "send", 0, b"", (await store.counts([ref()]))[0].now, "w"),))
        assert await store.adopt_finished(ref(), [first], topology.incarnation) == 1
        for _ in range(600):
            pipe.xadd(done, {"a": "b"})
        pipe.execute()
        pipe.xadd(done, {"t": "1", "w": "w", "n": "1", "d": msgpack.packb([b"last", b"send", 0, b""])})
        pipe.execute()
        await store.finished(ref())  # the server knows the script from now on
        client.config_resetstat()
        page = await store.finished(ref(), limit=1, newest_first=newest_first)
        (after,) = page
        rest = await store.finished(ref(), after.entry, newest_first=newest_first)
        calls = client.info("commandstats")["cmdstat_evalsha"]["calls"]
    found = [job.stored_id for batch in (*page, *rest) for job in batch.jobs]
    assert found == ([b"last", b"first"] if newest_first else [b"first", b"last"])
    assert await store.finished(ref(), rest[-1].entry, newest_first=newest_first) == []
    assert calls == 1 + 3  # 256 entries at most are looked at in one
