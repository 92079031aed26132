"""An audit that dies after any of its repairs leaves every job where it is, and the rest to the next audit."""

from __future__ import annotations

from collections.abc import Callable

import msgpack

from headrace.audit import audit
from headrace.lifecycle import promote
from headrace.settings import QueueSettings, Retention
from headrace.stores.redis import RedisStore
from tests.conformance.actors import Killed
from tests.conformance.ledger import holdings
from tests.conformance.steps import LONG_MS, QUEUE, Worker, enqueue, failures, key, new, ref
from tests.conformance.test_cut_connections import REPAIRS, Wire, may_change
from tests.integration.damage.hand import JUNK, Hand
from tests.services.redis_setups import RedisSetups

IDS = {name: key(name)[1:] for name in ("a", "b", "c", "d", "later", "dies")}


def damage(hand: Hand) -> None:
    """Something for each repair to do; no record is touched."""
    hand("ZADD", "retry", 1, b"1ghost")
    hand("RPUSH", "r1", b"ghost")
    hand("HSET", "lease", b"ghost", b"w:1")
    hand("ZADD", "scheduled", 9e12, b"1" + IDS["b"])
    hand("RPUSH", "r1", IDS["c"])
    hand("LREM", "r1", 1, IDS["d"])
    hand("ZADD", "dead", 1, b"ghost@1")
    hand("HSET", "letters", b"lost@2", msgpack.packb([b"record", b"changes"], use_bin_type=False))
    hand("HSET", "about", "w", JUNK)
    hand("SET", "park", "x")


async def test_J1_J10_an_audit_that_dies_after_any_repair_is_finished_by_the_next(
    setup: str, prefix: str, redis_setups: RedisSetups, hand_at: Callable[[str], Hand]
) -> None:
    died_after, at, ended = list[str](), 0, False
    while not ended:
        at += 1
        store = RedisStore(redis_setups.url(setup), prefix=f"{prefix}-{at}")
        await promote(store, QUEUE, 1, 1, settings=QueueSettings(retention=Retention()))
        await enqueue(store, "dies")
        await store.fail(ref(), failures(await Worker(store).claim(), None))
        await enqueue(store, "a", "b", "c", "d", new("later", when=-LONG_MS))
        damage(hand_at(f"{prefix}-{at}"))
        changed = list[str]()

        async def dies(sent: str) -> None:
            if may_change(sent):
                changed.append(sent)  # noqa: B023 - called in this turn
                if len(changed) == at:  # noqa: B023
                    raise Killed

        dying = store.clone()
        Wire(after=dies).put_between(dying)
        try:
            await audit(dying, QUEUE, load=1.0, repair=True)
            ended = True
        except Killed:
            died_after.append(changed[-1])
        mended = await audit(store, QUEUE, load=1.0, repair=True)
        assert (mended.open, mended.unproven) == ([], []), f"after {changed}"
        again = await audit(store, QUEUE, load=1.0)
        assert (again.leftovers, again.unproven) == ([], []), f"after {changed}"
        there, wrong = holdings(redis_setups.primaries(setup), f"{prefix}-{at}")
        assert (set(IDS.values()) - there, wrong) == (set(), []), f"after {changed}"
        await dying.close()
        await store.close()
        redis_setups.clear(setup, f"{prefix}-{at}:")
    assert set(died_after) == {"audit_confirm", *REPAIRS}
