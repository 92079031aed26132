"""What somebody else settles between an audit's look and its repair is no leftover; what stays is named all the same.

The audit's client stops just before the first repair of a kind, until the other one has done its part.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, cast

import pytest

from headrace.audit import audit
from headrace.stores.base import Beat
from headrace.stores.redis import RedisStore
from tests.conformance.steps import QUEUE, Worker, created, enqueue, ref, settled
from tests.integration.damage.hand import JUNK, Hand


class Between:
    """Passes calls on; somebody else acts before the first ``repair``. ``refuses``: that script changes nothing."""

    def __init__(
        self, client: Any, repair: str, act: Callable[[], Awaitable[object]], *, refuses: bool = False
    ) -> None:
        self._client = client
        self._repair = repair
        self._act = act
        self._refuses = refuses
        self.ran = Counter[str]()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    async def run(self, script: Any, *args: Any, **options: Any) -> Any:
        self.ran[script.name] += 1
        if script.name == self._repair:
            if self.ran[script.name] == 1:
                await self._act()
            if self._refuses:
                return 0
        return await self._client.run(script, *args, **options)


async def claimed(other: RedisStore, _: Hand) -> None:
    """A worker takes the entries out, finds nothing behind them, and is done with them."""
    claim = await Worker(other, "beside").claim()
    assert len(claim.jobs) == 3
    assert await other.ack(ref(), settled(claim)) == []


async def said_again(other: RedisStore, _: Hand) -> None:
    await other.tick(QUEUE, "w", Beat("host", 1))


def by_hand(command: str, key: str, *arguments: object) -> Callable[[RedisStore, Hand], Awaitable[object]]:
    async def act(_: RedisStore, hand: Hand) -> object:
        return hand(command, key, *arguments)

    return act


class Race(NamedTuple):
    """``damage``: commands by hand. ``settle``: what somebody else does before ``repair`` comes to it."""

    damage: tuple[tuple[Any, ...], ...]
    repair: str
    settle: Callable[[RedisStore, Hand], Awaitable[object]]


RACES = {
    "entries of a list": Race((("DEL", "jobs"),), "repair_list", claimed),
    "an entry of an index": Race((("ZADD", "retry", 1, "1x"),), "repair", by_hand("ZREM", "retry", "1x")),
    "a time without a letter": Race((("ZADD", "dead", 1, "x"),), "repair", by_hand("ZREM", "dead", "x")),
    "a field that was written anew": Race((("HSET", "about", "w", JUNK),), "repair_entry", said_again),
    "a field that is gone": Race((("HSET", "meta", "cap", JUNK),), "repair_entry", by_hand("HDEL", "meta", "cap")),
    "a member that is gone": Race(
        (("ZADD", "workers", 1, b"\xff"),), "repair_entry", by_hand("ZREM", "workers", b"\xff")
    ),
    "a key of another kind": Race((("SET", "park", "x"),), "set_apart", by_hand("DEL", "park")),
    "a hint of no partition": Race((("ZADD", "hot", 1, "9:0"),), "forget_stray", by_hand("ZREM", "hot", "9:0")),
}


@pytest.mark.parametrize("race", RACES.values(), ids=RACES)
async def test_J10_what_somebody_else_settles_before_its_repair_is_not_open(
    store: RedisStore, hand: Hand, race: Race
) -> None:
    await created(store)
    await enqueue(store, "a", "b", "c")
    for command, key, *arguments in race.damage:
        hand(command, key, *arguments)
    other = store.clone()
    between = Between(store._client, race.repair, lambda: race.settle(other, hand))
    store._client = cast(Any, between)
    found = await audit(store, QUEUE, load=1.0, repair=True)
    assert between.ran[race.repair] >= 1
    assert (found.open, found.unproven) == ([], [])
    await other.close()


@pytest.mark.parametrize("race", RACES.values(), ids=RACES)
async def test_J10_what_a_repair_does_not_mend_is_open_and_is_not_looked_at_for_ever(
    store: RedisStore, hand: Hand, race: Race
) -> None:
    async def nothing() -> None:
        """Nobody else does anything."""

    await created(store)
    await enqueue(store, "a", "b", "c")
    for command, key, *arguments in race.damage:
        hand(command, key, *arguments)
    seen = await audit(store, QUEUE, load=1.0)
    between = Between(store._client, race.repair, nothing, refuses=True)
    store._client = cast(Any, between)
    found = await audit(store, QUEUE, load=1.0, repair=True)
    assert {(each.label, each.leftover) for each in seen.open} <= {(each.label, each.leftover) for each in found.open}
    assert between.ran["audit_sizes"] <= 3
    assert between.ran[race.repair] <= 3
