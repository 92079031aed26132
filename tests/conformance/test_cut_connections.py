"""A client that dies at any command of any operation leaves every job in one place: an audit of all keys proves it."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from asyncio.subprocess import PIPE
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, cast

import pytest

from headrace.audit import audit
from headrace.dead_letters import dead_jobs, retry_dead
from headrace.deletion import delete_queue
from headrace.lifecycle import complete, configure, promote
from headrace.migration import bury_jobs, move_jobs, tidy_arrivals
from headrace.parked_jobs import bury_type
from headrace.producer import JobSpec, Producer
from headrace.purging import Purge, purge_queue
from headrace.schedules.mark import ScheduleMark
from headrace.settings import DrainSettings, QueueSettings, Retention
from headrace.statistics import summarise
from headrace.stores.base import Beat, Failure, Fence, Once, ParkedLimits, Release, Store, Success, Unknown
from headrace.stores.redis import RedisStore
from headrace.stores.redis.scripts import script
from headrace.topology import PartitionRef
from headrace.withdrawal import cancel_jobs, delete_job
from tests.conformance.ledger import Ledger, holdings
from tests.conformance.steps import (
    LONG_MS,
    QUEUE,
    Worker,
    enqueue,
    failures,
    ids,
    new,
    ref,
    run_everything,
    settled,
)
from tests.conformance.witness import Witness, steps_of_a_store
from tests.services.redis_setups import SETUPS, SUPPORTED, RedisSetups

LEADER = Fence(1, "leader")


class Wire:
    """Passes commands on to a store's client, one at a time, and lets whoever looks do so where the client may die.

    ``before`` a command is sent, and ``after`` it is applied, before its answer is read.
    """

    def __init__(
        self,
        before: Callable[[], None] = lambda: None,
        after: Callable[[str], Awaitable[None]] | None = None,
    ) -> None:
        self.client: Any = None
        self.sent: list[str] = []
        self._before = before
        self._after = after
        self._turn = asyncio.Lock()

    def put_between(self, store: RedisStore) -> None:
        """Let the store send its commands through this."""
        self.client = store._client
        store._client = cast(Any, self)
        if store._hints is not None:
            store._hints._client = cast(Any, self)

    def __getattr__(self, name: str) -> Any:
        call = getattr(self.client, name)
        if name not in ("run", "command", "blocking"):
            return call

        async def send(what: Any, *args: Any, **options: Any) -> Any:
            sent = str(getattr(what, "name", what) if name != "blocking" else args[0])
            async with self._turn:
                self.sent.append(sent)
                self._before()
                reply = await call(what, *args, **options)
                if self._after is not None:
                    await self._after(sent)
            return reply

        return send


async def done(step: Callable[[PartitionRef], Awaitable[int]]) -> None:
    """Take a step until there was something to do: the millisecond that it waits for has passed."""
    async with asyncio.timeout(60):
        while not await step(ref()):
            await asyncio.sleep(0.001)


async def jobs(store: Store) -> None:
    """Take jobs through every state; one by one, many at a time, with ids of the caller, at a time."""
    names = ("done", "failed", "released", "snoozed", "parked", "dead")
    await enqueue(store, *names, new("later", when=-1))
    worker = Worker(store, "one")
    claim = await worker.claim(6)
    await store.resume(ref(), worker.name, worker.seq, LONG_MS)
    leases = dict(zip(ids(claim), settled(claim), strict=True))
    await store.renew(ref(), list(leases.values()), LONG_MS)
    await store.ack(ref(), [leases["done"]], [Success("send", 0)])
    await store.fail(ref(), [Failure(*leases["failed"], 0, "boom"), Failure(*leases["dead"], None, "boom")])
    await store.release(ref(), [Release(*leases["released"]), Release(*leases["snoozed"], LONG_MS, "snoozed")])
    await store.park(ref(), [Unknown(*leases["parked"], "send")])
    await store.unpark(ref(), ["send"])
    lost = await worker.claim(2, lease_ms=LONG_MS)
    await store.renew(ref(), settled(lost), 1)
    await done(store.recover)
    await enqueue(store, new("soon", when=-1))
    await done(store.promote_due)
    parked = await worker.claim(1, alone=True)
    await store.park(ref(), [Unknown(*each, "send") for each in settled(parked)])
    await store.bury_parked(ref(), "send")
    letters = await store.dead_letters(ref())
    await store.remove_dead(ref(), [letter.letter for letter in letters[:1]])
    await store.trim(ref())
    await store.sleep(ref(), 0)
    producer = Producer(store)
    for dead in [letter async for letter in dead_jobs(store, QUEUE)]:
        await retry_dead(producer, store, dead)
    await producer.enqueue(QUEUE, "send", id="mine")
    await producer.enqueue(QUEUE, "send", delay=3600.0)
    await producer.enqueue_many(QUEUE, [JobSpec("send", n, id=f"many-{n}") for n in range(5)])
    other = Worker(store, "other")
    claim = await other.claim(3)
    await store.fail(ref(), failures(claim, None)[:1])
    await other.claim(2, acks=settled(claim)[1:])
    await audit(store, QUEUE, repair=True, load=1.0)


async def versions(store: Store) -> None:
    """Promote over a version with jobs of every kind, move some, bury some, complete it."""
    await enqueue(store, "finished")
    claim = await Worker(store, "other").claim(1)
    await store.ack(ref(), settled(claim), [Success("send", 0)])
    await enqueue(store, "a", "b", new("c", when=-LONG_MS))
    claim = await Worker(store, "one").claim(1)
    await store.fail(ref(), failures(claim, None))
    newer = await promote(store, QUEUE, 2, 1)
    await Producer(store).enqueue(QUEUE, "send", id="b")
    await store.install(ref(0, 3), newer.promoted(3, 1), 1)
    await store.discard(ref(0, 3))
    aside = await store.set_aside(ref(), LEADER, 2, 1)
    await store.retarget(ref(), LEADER, [each.stored_id for each in aside], 2)
    await store.bury_waiting(ref(), "drained too long", 1)
    await move_jobs(store, ref(), LEADER, limit=1)
    await tidy_arrivals(store, ref(0, 2), LEADER)
    await bury_jobs(store, ref(), DrainSettings(timeout_ms=1000, on_timeout="dead_letter"))
    await configure(store, QUEUE, QueueSettings(timeout_ms=1000, retention=Retention()))
    await complete(store, QUEUE, 1, client_retry_ms=0)
    topology = await store.read_topology(QUEUE)
    assert topology is not None
    await run_everything(store, topology)


async def moves(store: Store) -> None:
    """Two leaders move jobs, the second one those that the first has set aside for a version that is active no more."""
    topology = await promote(store, QUEUE, 2, 1)
    await store.install(ref(0, 3), topology.promoted(3, 1), 1)
    await store.discard(ref(0, 3))  # somebody has undone it
    await enqueue(store, "a", "b", new("c", when=-LONG_MS), at=ref(0, 2))
    await enqueue(store, "parked", at=ref(0, 2))
    claim = await Worker(store, "one").claim(1, at=ref(0, 2))
    await store.fail(ref(0, 2), failures(claim, LONG_MS))
    await promote(store, QUEUE, 3, 1)
    await store.fence(ref(0, 2), LEADER)
    aside = await store.set_aside(ref(0, 2), LEADER, 3, 3)
    await store.adopt(ref(0, 3), 1, LEADER, ref(0, 2), aside[:1])
    await store.let_go(ref(0, 2), LEADER, [aside[0].stored_id])
    await promote(store, QUEUE, 4, 2)
    await tidy_arrivals(store, ref(0, 3), Fence(2, "next"))
    await move_jobs(store, ref(0, 2), Fence(2, "next"))
    await move_jobs(store, ref(0, 2), Fence(2, "next"))
    for partition in range(2):
        await tidy_arrivals(store, ref(partition, 4), Fence(2, "next"))
    while await move_jobs(store, ref(0, 3), Fence(2, "next")):
        pass
    for version in (1, 2, 3):
        await complete(store, QUEUE, version, client_retry_ms=0)


async def deletion(store: Store) -> None:
    """Delete the queue with what it holds, and create it again."""
    await enqueue(store, "a", new("later", when=-LONG_MS))
    await delete_queue(store, QUEUE)
    await delete_queue(store, QUEUE)  # as whoever does not know that it was done
    await promote(store, QUEUE, 1, 2)
    await enqueue(store, "a", at=ref(0), partitions=2)


async def removal(store: Store) -> None:
    """Cancel jobs that wait and one that runs, delete one with its letter, purge what is left."""
    await enqueue(store, "leased", "dies")
    claim = await Worker(store, "one").claim(2)
    await store.fail(ref(), failures(claim, None)[1:])
    await enqueue(store, "a", "b", "c", "dies", new("later", when=-LONG_MS), new("spam", when=-LONG_MS))
    await cancel_jobs(store, QUEUE, ["a", "later", "leased"])
    await delete_job(store, QUEUE, "dies")
    await purge_queue(store, QUEUE, Purge(("ready", "scheduled", "dead", "succeeded"), 1 << 50), load=1.0)
    await enqueue(store, "p", "q", "r")
    parked = await Worker(store, "two").claim(3)
    await store.park(ref(), [Unknown(*each, "send") for each in settled(parked)])
    await store.trim_parked(ref(), "send", ParkedLimits(1, None), fence=LEADER)
    await bury_type(store, QUEUE, "send")


async def schedules(store: Store) -> None:
    """A leader puts in the job of a time once, and notes it; another one comes to the same time later."""
    noted = (await store.read_schedules(QUEUE)).marks.get("nightly")
    for leader in (LEADER, Fence(2, "next")):
        await store.fence(ref(), leader)
        await store.enqueue(ref(), 1, f"of {leader.nonce}".encode(), [new("night")], once=Once("nightly", 1))
        if await store.note_schedule(QUEUE, leader, "nightly", noted, ScheduleMark(1, "0 3 * * *")):
            noted = ScheduleMark(1, "0 3 * * *")
    if noted is not None:
        await store.forget_schedule(QUEUE, "nightly", noted)
    for claim in (await Worker(store, "one").claim(2), await Worker(store, "two").claim(2)):
        await store.ack(ref(), settled(claim))


async def surroundings(store: Store) -> None:
    """What is kept beside jobs: the registry of workers, the timer, hints, statistics."""
    await enqueue(store, "a", new("later", when=-LONG_MS))
    await store.tick(QUEUE, "one", Beat("host", 1, "pod", "node", 1, 1))
    await store.hint(ref())
    await store.stop_claiming(QUEUE, ["one"], 1000)
    await store.count_work(QUEUE, {"claimed": 1})
    await summarise(store, QUEUE)
    await store.write_scaling(QUEUE, b"1")
    await store.wait_hint([QUEUE], 0.01)
    await store.leave(QUEUE, "one")
    claim = await Worker(store, "one").claim(1)
    await store.ack(ref(), settled(claim))


async def looks(store: Store) -> None:
    """Whatever only looks; the marker, and hints that an audit gives and takes."""
    await enqueue(store, "a")
    topology = await store.read_topology(QUEUE)
    assert topology is not None
    await store.counts([ref()])
    await store.survey([ref()])
    await store.statuses(ref(), [b"a"])
    await store.describe(ref(), b"a")
    await store.browse(ref(), "r1")
    await store.finished(ref())
    await store.find_finished(ref(), [b"a"])
    await store.dead_letters(ref())
    await store.find_dead(ref(), [b"a"])
    await store.parked(ref())
    await store.parked_partitions(QUEUE)
    await store.arrivals(ref())
    await store.still_aside(ref(), [b"a"])
    await store.successor(ref())
    await store.read_grave(QUEUE)
    await store.read_stats(QUEUE)
    await store.workers(QUEUE)
    await store.about_workers(QUEUE, ["one"])
    await store.glance(QUEUE)
    await store.queues()
    await store.wait_wakes(await store.last_wake(), 0.001)
    await store.write_marker(await store.read_marker() or "data")
    await store.hint_parked(ref(), 1)
    await store.hinted_labels(QUEUE)
    await store.unpark(ref(), ["send"])
    await store.forget_hints(topology, b"9:0")


REPAIRS = ("repair", "repair_list", "repair_entry", "set_apart")
OPERATIONS = {
    "jobs": jobs,
    "versions": versions,
    "moves": moves,
    "deletion": deletion,
    "removal": removal,
    "schedules": schedules,
    "surroundings": surroundings,
    "looks": looks,
}
ELSEWHERE = {
    **dict.fromkeys(("audit_confirm", *REPAIRS), "of damage that a foreign hand has done: test_cut_repairs.py"),
    "barrier": "it changes nothing, so that what came before is waited for",
}
"""Scripts that change something and that none of the operations comes to."""
READS = re.compile(
    r"(?:EXISTS|TIME|TYPE|PTTL|H?GET|HMGET|HGETALL|HLEN|HSTRLEN|HEXISTS|HRANDFIELD|L(?:LEN|INDEX|POS|RANGE)|[HZ]SCAN)"
    r"|Z(?:M?SCORE|CARD|COUNT|LEXCOUNT|RANK|(?:REV)?RANGE(?:BYSCORE|BYLEX)?)|X(?:REV)?RANGE"
)
"""Commands that change nothing."""
SCRIPTS = {
    each.name.removesuffix(".lua")
    for each in (files("headrace.stores.redis") / "lua").iterdir()
    if each.name.endswith(".lua")
}


def changes_something(source: str) -> bool:
    return any(not READS.fullmatch(command) for command in re.findall(r"redis\.p?call\('(\w+)'", source))


@cache
def may_change(sent: str) -> bool:
    """Whether a command, or a script by its name, may change anything."""
    if sent in SCRIPTS:
        return changes_something(script(sent).source)
    return not READS.fullmatch(sent)


NOT_CUT = {
    "close": "it ends the connections",
    "clone": "it opens others",
    "check": "it asks the server for its facts",
    "facts": "the same",
    "memory": "the same",
    "stored_partitions": "it looks through all keys, which this user may not",
    "stored_queues": "the same",
    "hints_may_be_lost": "no step: it says of what kind the store is",
}
"""What a store offers that none of the operations does."""


async def test_J1_the_operations_take_every_step_that_changes_something(prefix: str, redis_setups: RedisSetups) -> None:
    """What a client may die at is everything that there is; a Cluster has steps of its own for hints."""
    sent = set[str]()
    taken = Counter[str]()
    for setup in ("redis", "cluster"):
        for operation in OPERATIONS:
            store = RedisStore(redis_setups.url(setup), prefix=f"{prefix}-{operation}")
            await promote(store, QUEUE, 1, 1, settings=QueueSettings(retention=Retention()))
            wire = Wire()
            wire.put_between(store)
            await OPERATIONS[operation](Witness(store, taken).store)
            sent.update(wire.sent)
            await store.close()
    changing = {name for name in SCRIPTS if may_change(name)}
    assert changing - sent == set(ELSEWHERE)
    assert steps_of_a_store() - set(taken) == set(NOT_CUT), "add what is new to an operation, or say why not"


async def problems(store: Store) -> Sequence[object]:
    """What an audit finds; nothing where there is no queue yet, or no more."""
    if await store.read_topology(QUEUE) is None:
        return ()
    found = await audit(store, QUEUE, load=1.0)
    if store.hints_may_be_lost:
        # Of these the audit tells because somebody has to raise them: a leader, a worker that starts, or a repair.
        lost = [each for each in found.open if (each.leftover.kind, each.leftover.key) == ("no hint", "parked")]
        if lost:
            await audit(store, QUEUE, load=1.0, repair=True)
            found = await audit(store, QUEUE, load=1.0)
    return [*found.open, *found.unproven]


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("setup", SUPPORTED)
async def test_J1_J10_QB2_a_client_that_dies_at_any_command_leaves_every_job_in_one_place(
    setup: str, prefix: str, redis_setups: RedisSetups, operation: str
) -> None:
    """The client stands still wherever it may die, while others look: for them that is the same.

    Before a command is sent there is what the last one has left, and after it, while its answer is unread. What
    differs is what the client knows, and so what is owed. A command that changes nothing leaves what was there.
    """
    store = RedisStore(redis_setups.url(setup), prefix=prefix)
    await promote(store, QUEUE, 1, 1, settings=QueueSettings(retention=Retention()))
    others, ledger, there = store.clone(), Ledger(store), set[bytes]()
    with redis_setups.connected(setup) as primaries:

        async def look(sent: str) -> None:
            if may_change(sent):
                assert list(await problems(others)) == [], f"after {wire.sent}"
                found, wrong = holdings(primaries, prefix)
                assert wrong == [], f"after {wire.sent}"
                there.clear()
                there.update(found)
            nothing_is_lost()

        def nothing_is_lost() -> None:
            assert ledger.owed <= there, f"after {wire.sent}"

        wire = Wire(nothing_is_lost, look)
        wire.put_between(store)
        await OPERATIONS[operation](ledger.store)
        nothing_is_lost()
    assert len(wire.sent) >= 9
    await others.close()
    await store.close()


@pytest.mark.parametrize(("setup", "operation"), [(SETUPS[0], each) for each in OPERATIONS] + [("cluster", "jobs")])
async def test_J1_a_process_killed_after_any_command_leaves_every_job_in_one_place(
    setup: str, operation: str, prefix: str, redis_setups: RedisSetups, tmp_path: Path
) -> None:
    """The same with kill -9: the command is in the socket, the answer unread, the connections end with the process.

    Where a command changes nothing a death leaves what the one before has left.
    """
    arguments = (sys.executable, "-m", "tests.conformance.mortal", redis_setups.url(setup), prefix, operation)
    process = await asyncio.create_subprocess_exec(*arguments, str(tmp_path), stdin=PIPE, stdout=PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    cut, told = 0, b"killed\n"
    async with asyncio.timeout(300):
        while told == b"killed\n":
            cut += 1
            process.stdin.write(b"\n")
            told = await process.stdout.readline()
            owed = {bytes.fromhex(each) for each in json.loads((tmp_path / "owed").read_text())}
            store = RedisStore(redis_setups.url(setup), prefix=f"{prefix}-{cut}")
            assert list(await problems(store)) == [], f"at command {cut}"
            there, wrong = holdings(redis_setups.primaries(setup), f"{prefix}-{cut}")
            assert (owed - there, wrong) == (set(), []), f"at command {cut}"
            await store.close()
            redis_setups.clear(setup, f"{prefix}-{cut}:")
        process.stdin.close()
        assert await process.wait() == 0
    assert told == b"ended\n"
    assert cut >= 4
