"""The dispatcher: a Queue whose event comes at an awkward moment, or not at all, is looked at all the same."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import cast

from headrace_operator.api.names import QueueKey
from headrace_operator.dispatcher import Dispatcher
from headrace_operator.kubernetes.client import ApiUnavailable, Kube
from headrace_operator.kubernetes.listing import Listed, Lister
from headrace_operator.kubernetes.recent import Recent
from headrace_operator.reconciler import Reconciler
from tests.unit.operator.test_convergence import World

KEY, OTHER = QueueKey("ns", "mail"), QueueKey("ns", "sms")


class Lists:
    """Gives the lists of ``script`` one after the other, the last one for ever."""

    def __init__(self, *script: dict[QueueKey, Listed]) -> None:
        self.script = list(script) or [{}]

    async def list_all(self) -> dict[QueueKey, Listed]:
        found = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        if not found and len(self.script) > 1:
            raise ApiUnavailable("no answer")
        return found


class Passes:
    """Looks at Queues as ``look`` says, and notes which."""

    def __init__(self, look: Callable[[QueueKey, int], float | None]) -> None:
        self.seen: list[QueueKey] = []
        self.came = asyncio.Event()
        self._look = look

    async def reconcile(self, key: QueueKey) -> float | None:
        self.seen.append(key)
        self.came.set()
        return self._look(key, len(self.seen))

    def failed(self, key: QueueKey) -> float:
        return 1000.0


async def played(passes: Passes, lists: Lists, until: Callable[[], bool], **options: float) -> Dispatcher:
    """Run a dispatcher until something holds."""
    loop = asyncio.get_running_loop()
    dispatcher = Dispatcher(cast(Reconciler, passes), cast(Lister, lists), clock=loop.time, concurrency=2, **options)  # type: ignore[arg-type]

    async def wait() -> None:
        while not until():
            passes.came.clear()
            await passes.came.wait()

    await ended(dispatcher.run(), wait())
    return dispatcher


async def ended(work: Awaitable[None], wait: Awaitable[None]) -> None:
    running = asyncio.ensure_future(work)
    try:
        async with asyncio.timeout(10):
            await wait
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_a_queue_that_is_created_again_while_its_removal_is_noted_is_looked_at() -> None:
    def look(key: QueueKey, number: int) -> float | None:
        if number == 1:
            dispatcher.add(key)  # it is created again before that pass has ended
            return None
        return 1000.0

    passes, loop = Passes(look), asyncio.get_running_loop()
    dispatcher = Dispatcher(cast(Reconciler, passes), cast(Lister, Lists()), clock=loop.time, concurrency=2)
    dispatcher.add(KEY)

    async def wait() -> None:
        while len(passes.seen) < 2:
            passes.came.clear()
            await passes.came.wait()

    await ended(dispatcher.run(), wait())
    assert passes.seen == [KEY, KEY]


async def test_what_a_list_shows_and_no_event_told_is_looked_at() -> None:
    passes = Passes(lambda key, number: 1000.0)
    lists = Lists(
        {KEY: Listed("u1", "5", True)},
        {},  # no answer
        {KEY: Listed("u1", "5", False), OTHER: Listed("u2", "6", True)},
        {KEY: Listed("u1", "9", True)},
    )
    dispatcher = await played(
        passes, lists, lambda: passes.seen.count(KEY) >= 2 and passes.seen.count(OTHER) >= 2, list_seconds=0.01
    )
    # KEY when it came and when it changed, OTHER when it came and when it was missing.
    assert passes.seen[0] == KEY
    assert dispatcher.listed == {"u1": "9"}


async def test_O41_a_queue_whose_end_was_missed_is_found_by_the_next_list() -> None:
    world = World()
    await world.create()
    recent, loop = Recent(world.seconds), asyncio.get_running_loop()
    lister = Lister(cast(Kube, world.api), recent, ["ns"])
    connections, reconciler = world.operator(recent)
    try:
        await lister.list_all()
        for _ in range(3):
            world.now += 30_000
            await reconciler.reconcile(KEY)
        world.api.objects.clear()  # no watch tells of it
        world.now += 30_000
        assert await reconciler.reconcile(KEY) is not None, "it is taken for unchanged"
        dispatcher = Dispatcher(reconciler, lister, clock=loop.time)
        dispatcher.add(KEY, 600.0)

        async def wait() -> None:
            while dispatcher.depth[0]:
                await asyncio.sleep(0.01)

        await ended(dispatcher.run(), wait())
        assert recent.queue(KEY) is None
    finally:
        await connections.close()


async def test_one_queue_that_breaks_a_pass_stops_no_other() -> None:
    def look(key: QueueKey, number: int) -> float | None:
        if key == KEY:
            raise ZeroDivisionError("a fault of ours")
        return 1000.0

    passes = Passes(look)
    lists = Lists({KEY: Listed("u1", "5", True), OTHER: Listed("u2", "6", True)})
    dispatcher = await played(passes, lists, lambda: {KEY, OTHER} <= set(passes.seen))
    assert dispatcher.depth[0] == 2
