"""What a step costs the server depends on its batch, not on how much is stored: counted in commands, not in time.

How long it takes is measured by benchmark B15.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bench.ours.scripts import NEW, Walk
from headrace.ids import encode_id
from headrace.stores.base import FinishedBatch, FinishedJob
from headrace.stores.redis import RedisStore
from tests.cluster.guard import Guard
from tests.services.redis import RedisServer

PER_ELEMENT = 13
"""Commands that a script may need for one element of its batch, whichever it is."""
TO_WITHDRAW = 25
"""The same for a job that may be in any index, out of which it is taken."""
FIXED = 60
"""Commands that it may need besides."""


@pytest.fixture(scope="module")
def own_server(process_guard: Guard) -> Iterator[RedisServer]:
    with RedisServer("valkey", guard=process_guard) as server:
        yield server


async def counted(server: RedisServer, scheduled: int, done: int) -> dict[str, list[float]]:
    """Take jobs through every script, twice, in a partition that holds so many others; commands of each step."""
    with server.client() as client:
        client.flushall()

        async def commands() -> float:
            sent = client.info("commandstats")
            return float(sum(each["calls"] for name, each in sent.items() if name != "cmdstat_info"))

        store = RedisStore(server.url)
        try:
            walk = Walk(store, commands)
            await walk.fill(scheduled, 0)
            await finished(store, done)
            for _ in range(2):
                await walk.round()
        finally:
            await store.close()
    return walk.samples


async def finished(store: RedisStore, jobs: int) -> None:
    """Let so many jobs have finished."""
    now = (await store.counts([NEW]))[0].now
    batches = [
        FinishedBatch(
            b"", tuple(FinishedJob(encode_id(f"old-{start + n:06}"), "noop", 0, b"", now, "w") for n in range(250))
        )
        for start in range(0, jobs, 250)
    ]
    for start in range(0, len(batches), 100):
        assert await store.adopt_finished(NEW, batches[start : start + 100], 1) == len(batches[start : start + 100])


async def test_M14_QC5_a_step_runs_as_many_commands_whatever_is_stored(own_server: RedisServer) -> None:
    """Beside a thousand jobs and beside 100,000: the same number, and a few for each element at most."""
    few, many = await counted(own_server, 1_000, 20_000), await counted(own_server, 100_000, 100_000)
    # An audit looks at all of it, in steps. The first call of a script may be sent twice: the server has to load it.
    for samples in (few, many):
        samples.pop("audit: one step")
    assert many.keys() == few.keys()
    apart = {name: (few[name][-1], calls[-1]) for name, calls in many.items() if abs(few[name][-1] - calls[-1]) > 3}
    assert apart == {}, "three commands apart: nonces are trimmed, and indexes made tables, when it is time"
    for name, calls in many.items():
        elements = sum(int(word.replace(",", "")) for word in name.split() if word.replace(",", "").isdigit())
        each = TO_WITHDRAW if name.startswith("withdraw") else PER_ELEMENT
        assert calls[-1] <= FIXED + each * elements, name
