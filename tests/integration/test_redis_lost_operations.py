"""Any reply of any operation is lost, and the operation is asked for again: it has happened once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from itertools import count
from typing import Any, NamedTuple

import pytest

from headrace import JobSpec, OutcomeUnknown, Producer, StoreUnavailable
from headrace.audit import audit
from headrace.dead_letter_lines import import_letters, letter_of, line_of
from headrace.dead_letters import dead_jobs, delete_dead, retry_dead
from headrace.deletion import delete_queue
from headrace.errors import UnknownVersion
from headrace.lifecycle import complete, configure, promote
from headrace.migration import bury_jobs, move_jobs, tidy_arrivals
from headrace.parked_jobs import bury_type
from headrace.pausing import pause_queue, resume_queue
from headrace.purging import Purge, purge_queue
from headrace.schedules.mark import ScheduleMark
from headrace.settings import DrainSettings, QueueSettings, Retention
from headrace.stores import Store, open_store
from headrace.stores.base import Beat, Failure, Fence, Once, ParkedLimits, Release, Settled, Success, Unknown
from headrace.withdrawal import cancel_jobs, delete_job
from tests.conformance.steps import LONG_MS, QUEUE, ids, new, ref
from tests.conformance.steps import Worker as Claimer
from tests.services.lossy_wire import LossyWire
from tests.services.redis import RedisServer

LEADER = Fence(1, "leader")
JOBS = ("a", "b", "c")

Act = Callable[[Store, "Scene"], Awaitable[object]]


class Scene(NamedTuple):
    """What was there before: the leases of ``a``, ``b`` and ``c``, and the lines of the dead letter ``dead``."""

    leases: dict[str, Settled]
    lines: list[dict[str, Any]]


async def scene(store: Store) -> Scene:
    """Jobs in every state: three are leased, one is parked, one dead, one finished, some wait, some are scheduled."""
    await promote(store, QUEUE, 1, 1, settings=QueueSettings(retention=Retention()))
    await store.enqueue(ref(), 1, b"first", [new(name) for name in (*JOBS, "parked", "dead", "done", "lost")])
    claimer = Claimer(store, "first")
    claim = await claimer.claim(6)
    leases = {name: Settled(job.key, claim.token) for name, job in zip(ids(claim), claim.jobs, strict=True)}
    await store.park(ref(), [Unknown(*leases["parked"], "send")])
    await store.fail(ref(), [Failure(*leases["dead"], None, "boom")])
    await store.ack(ref(), [leases["done"]], [Success("send", 0)])
    await claimer.claim(1, lease_ms=1)
    waiting = [new(name) for name in ("w", "x")] + [new(name, when=-LONG_MS) for name in ("later", "y")]
    await store.enqueue(ref(), 1, b"second", [*waiting, new("due", when=-1)])
    while (await store.counts([ref()]))[0].now <= claim.now + 10:  # what is lost, or due, is so by now
        await asyncio.sleep(0.002)
    lines = [line_of(dead) async for dead in dead_jobs(store, QUEUE)]
    return Scene(leases, lines)


async def draining(store: Store) -> Scene:
    """The same, with an active version above it, which has a job of its own."""
    found = await scene(store)
    await promote(store, QUEUE, 2, 2)
    await Producer(store).enqueue(QUEUE, "send", id="newer")
    return found


async def drained(store: Store) -> Scene:
    """A version that can be completed: it holds nothing but what has ended."""
    found = await scene(store)
    await store.renew(ref(), list(found.leases.values())[:3], LONG_MS)
    await cancel_jobs(store, QUEUE, [*JOBS, "parked", "lost", "w", "x", "later", "y", "due"])
    await promote(store, QUEUE, 2, 2)
    return found


async def picture(store: Store) -> dict[str, Any]:
    """Everything that may be seen of the queue, but for times: the same whatever reply was lost."""
    topology = await store.read_topology(QUEUE)
    if topology is None:
        return {"grave": (await store.read_grave(QUEUE)) is not None}
    shown: dict[str, Any] = {
        "active": topology.active,
        "states": {version: known.partitions for version, known in topology.versions.items()},
        "settings": topology.settings.model_dump(),
        "deleting": topology.deleting,
        "marks": (await store.read_schedules(QUEUE)).marks,
        "workers": [(entry.worker, entry.beat, entry.gone) for entry in await store.workers(QUEUE)],
        "marker": await store.read_marker() is not None,
    }
    for at in [at for version in topology.versions for at in topology.refs(version)]:
        (counts,) = await store.counts([at])
        letters = await store.dead_letters(at)
        # Of a version that is completed a page of them may be given twice, which `headrace.finished` says.
        finished = {job.stored_id for batch in await store.finished(at) for job in batch.jobs}
        shown[at.label] = (
            counts.state,
            counts.nonempty(),
            sorted(letter.stored_id for letter in letters),
            sorted(finished),
            await store.parked(at),
            await store.arrivals(at),
        )
    found = await audit(store, QUEUE, load=1.0)
    shown["audit"] = (found.open, found.unproven)
    return shown


def now(store: Store) -> Purge:
    return Purge(("ready", "scheduled", "dead", "succeeded"), 1 << 50)


async def put_back(store: Store, _: Scene) -> None:
    """The letter of a job that lives again stays, if its removal was not heard of; it is deleted by hand then."""
    letters = [dead async for dead in dead_jobs(store, QUEUE)]
    for dead in letters:
        if await retry_dead(Producer(store), store, dead) is False:
            await delete_dead(store, [dead])


async def delete_letters(store: Store, _: Scene) -> None:
    await delete_dead(store, [dead async for dead in dead_jobs(store, QUEUE)])


async def bring_letters(store: Store, given: Scene) -> None:
    await import_letters(store, QUEUE, [letter_of({**line, "id": f"{line['id']}-2"}) for line in given.lines])


async def move(store: Store, _: Scene) -> None:
    while await move_jobs(store, ref(), LEADER):
        pass
    for number in range(2):
        await tidy_arrivals(store, ref(number, 2), LEADER)


async def end_version(store: Store, _: Scene) -> None:
    with suppress(UnknownVersion):  # it was completed, and that was not heard of
        await complete(store, QUEUE, 1, client_retry_ms=0)


async def bury(store: Store, _: Scene) -> None:
    while await bury_jobs(store, ref(), DrainSettings(timeout_ms=1000, on_timeout="dead_letter"), fence=LEADER):
        pass


async def note(store: Store, _: Scene) -> None:
    marks = (await store.read_schedules(QUEUE)).marks
    mark = ScheduleMark(1, "0 3 * * *")
    if marks.get("nightly") != mark:
        await store.note_schedule(QUEUE, LEADER, "nightly", marks.get("nightly"), mark)


def enqueue_many(store: Store, _: Scene) -> Awaitable[object]:
    return Producer(store).enqueue_many(QUEUE, [JobSpec("send", n, id=f"many-{n}") for n in range(20)])


async def enqueue_each(store: Store, _: Scene) -> None:
    answers = await Producer(store).enqueue_each(QUEUE, [JobSpec("send", n, id=f"each-{n}") for n in range(20)])
    for answer in answers:
        if isinstance(answer, Exception):
            raise answer


BEAT = Beat("host", 1, "pod", "node", 1, 1)

OPERATIONS: dict[str, tuple[Callable[[Store], Awaitable[Scene]], Act]] = {
    "enqueue": (scene, lambda store, _: Producer(store).enqueue(QUEUE, "send", id="new")),
    "enqueue a job that is there": (scene, lambda store, _: Producer(store).enqueue(QUEUE, "send", id="w")),
    "enqueue while a version drains": (draining, lambda store, _: Producer(store).enqueue(QUEUE, "send", id="x")),
    "enqueue many": (scene, enqueue_many),
    "enqueue each": (scene, enqueue_each),
    "enqueue once": (
        scene,
        lambda store, _: Producer(store).enqueue_once(QUEUE, JobSpec("send", id="night"), Once("nightly", 1)),
    ),
    "ack": (scene, lambda store, given: store.ack(ref(), [given.leases["a"]], [Success("send", 0)])),
    "ack with a claim": (
        scene,
        lambda store, given: store.claim(ref(), "second", 1, 0, LONG_MS, [given.leases["a"]]),
    ),
    "fail": (scene, lambda store, given: store.fail(ref(), [Failure(*given.leases["a"], LONG_MS, "boom")])),
    "fail for good": (scene, lambda store, given: store.fail(ref(), [Failure(*given.leases["a"], None, "boom")])),
    "release": (scene, lambda store, given: store.release(ref(), [Release(*given.leases["a"])])),
    "snooze": (scene, lambda store, given: store.release(ref(), [Release(*given.leases["a"], LONG_MS, "snoozed")])),
    "renew": (scene, lambda store, given: store.renew(ref(), [given.leases["a"]], 2 * LONG_MS)),
    "park": (scene, lambda store, given: store.park(ref(), [Unknown(*given.leases["a"], "send")])),
    "unpark": (scene, lambda store, _: store.unpark(ref(), ["send"])),
    "recover": (scene, lambda store, _: store.recover(ref())),
    "promote due jobs": (scene, lambda store, _: store.promote_due(ref())),
    "give up a type": (scene, lambda store, _: bury_type(store, QUEUE, "send")),
    "limit parked jobs": (
        scene,
        lambda store, _: store.trim_parked(ref(), "send", ParkedLimits(1, None), fence=LEADER),
    ),
    "put dead letters back": (scene, put_back),
    "delete dead letters": (scene, delete_letters),
    "bring dead letters": (scene, bring_letters),
    "cancel": (scene, lambda store, _: cancel_jobs(store, QUEUE, ["a", "w", "later", "parked"])),
    "delete a job": (scene, lambda store, _: delete_job(store, QUEUE, "dead")),
    "purge": (scene, lambda store, _: purge_queue(store, QUEUE, now(store), load=1.0)),
    "trim": (scene, lambda store, _: store.trim(ref())),
    "promote": (scene, lambda store, _: promote(store, QUEUE, 2, 3)),
    "configure": (scene, lambda store, _: configure(store, QUEUE, QueueSettings(max_length=7))),
    "pause": (scene, lambda store, _: pause_queue(store, QUEUE)),
    "resume": (scene, lambda store, _: resume_queue(store, QUEUE)),
    "complete": (drained, end_version),
    "move jobs": (draining, move),
    "bury jobs": (draining, bury),
    "delete the queue": (draining, lambda store, _: delete_queue(store, QUEUE)),
    "note a schedule": (scene, note),
    "set a fence": (scene, lambda store, _: store.fence(ref(), LEADER)),
    "write the marker": (scene, lambda store, _: store.write_marker("data")),
    "beat": (scene, lambda store, _: store.tick(QUEUE, "w-1", BEAT)),
    "leave": (scene, lambda store, _: store.leave(QUEUE, "w-1")),
    "sleep": (scene, lambda store, _: store.sleep(ref(), 0)),
    "repair": (scene, lambda store, _: audit(store, QUEUE, repair=True, load=1.0)),
}


async def until_answered(act: Act, store: Store, given: Scene) -> int:
    """Ask again as whoever got no answer does; how often it took."""
    for tries in range(1, 5):
        try:
            await act(store, given)
        except (StoreUnavailable, OutcomeUnknown):
            continue
        return tries
    raise AssertionError("one reply was lost, and it was asked for four times")


@asynccontextmanager
async def opened(url: str, prefix: str) -> AsyncIterator[Store]:
    store = open_store(url, prefix)
    try:
        yield store
    finally:
        await store.close()


@pytest.mark.parametrize("name", OPERATIONS)
async def test_M20_J1_an_operation_whose_reply_was_lost_has_happened_once_when_it_is_asked_for_again(
    redis_server: RedisServer, prefix: str, name: str
) -> None:
    prepare, act = OPERATIONS[name]
    async with opened(redis_server.url, prefix) as undisturbed:
        await act(undisturbed, await prepare(undisturbed))
        wanted = await picture(undisturbed)
    assert wanted.get("audit", ([], [])) == ([], [])
    cut, lost = 0, 1
    while lost:
        cut += 1
        async with (
            opened(redis_server.url, f"{prefix}-{cut}") as safe,
            LossyWire(redis_server.port) as wire,
            opened(wire.url, f"{prefix}-{cut}") as store,
        ):
            given = await prepare(safe)
            wire.loses = partial(next, (number == cut for number in count(1)))
            await until_answered(act, store, given)
            lost = wire.lost
            assert await picture(safe) == wanted, f"reply {cut} was lost"
    assert cut >= 3  # of the connection, and of a step at least
