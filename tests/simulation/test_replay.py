"""The real stores and `headrace.lifecycle` do, step by step, what the model does on random walks through it."""

from __future__ import annotations

import asyncio
from itertools import islice

import pytest

from headrace.stores.base import Store
from headrace.stores.memory import MemoryStore
from headrace.stores.redis import RedisStore
from headrace.topology import PartitionRef, Topology
from tests.services.redis import RedisServers, flavours
from tests.simulation.comparison import QUEUE
from tests.simulation.replay import UNSTORED, Advance, Forget, Replay, walk
from tests.simulation.rules import PROTOCOL, Rules
from tests.simulation.scenarios import LARGE, SMALL
from tests.simulation.world import Model, describe

SCENARIOS = {**SMALL, **LARGE}
WALKS = {"memory": 8, "redis": 2, "valkey": 2}
STEPS = 60


RARE = {"move, two leaders at once": "still_aside", "move, replaced leader, three versions": "retarget"}
"""Steps that few walks come to."""


def seeds(backend: str, name: str) -> list[int]:
    """Return which walks to take: some that come, and three that come to a step that is rare in the scenario."""
    found = list(range(WALKS[backend]))
    if step := RARE.get(name):
        model = Model(SCENARIOS[name])
        rare = (n for n in range(1000) if any(walked.step.call.method == step for walked in walk(model, n, STEPS)))
        found += islice(rare, 3)
    return found


class Backend:
    """Opens empty stores of one kind."""

    def __init__(self, name: str, prefix: str, servers: RedisServers) -> None:
        self.name = name
        self._prefix = prefix
        self._servers = servers
        self._now = 1_700_000_000_000

    def open(self, number: int) -> Store:
        if self.name == "memory":
            return MemoryStore(lambda: self._now)
        url = self._servers.get("redis" if self.name == "redis" else "valkey").url
        return RedisStore(url, prefix=f"{self._prefix}-{number}")

    def advance(self, store: Store) -> Advance:
        """Return how the clock of ``store`` goes on: by hand, or by waiting for the server's."""

        async def turn(ms: int) -> None:
            self._now += ms

        async def wait(ms: int) -> None:
            at = [PartitionRef(QUEUE, 1, 0)]
            end = (await store.counts(at))[0].now + ms
            async with asyncio.timeout(60):
                while (await store.counts(at))[0].now < end:
                    await asyncio.sleep(0.002)

        return turn if self.name == "memory" else wait

    def forget(self, store: Store) -> Forget:
        """Return how the topology of ``store`` is replaced by an earlier one, behind everybody's back."""

        async def replace(topology: Topology) -> None:
            if isinstance(store, MemoryStore):
                store._data.topologies[QUEUE] = topology
            else:
                assert isinstance(store, RedisStore)
                await store._client.command("SET", store._keys.queue(QUEUE, "topology"), topology.to_json())

        return replace


@pytest.fixture(params=("memory", *flavours()))
def backend(request: pytest.FixtureRequest, prefix: str, redis_servers: RedisServers) -> Backend:
    return Backend(request.param, prefix, redis_servers)


async def replay(backend: Backend, name: str, seed: int, rules: Rules = PROTOCOL) -> None:
    model = Model(SCENARIOS[name], rules)
    steps = walk(model, seed, STEPS)
    store = backend.open(seed)
    try:
        await Replay(model, store, backend.advance(store), backend.forget(store)).run(steps)
    except AssertionError as error:
        error.add_note(describe(model, [walked.step for walked in steps]))
        raise
    finally:
        await store.close()


@pytest.mark.parametrize("name", SCENARIOS)
async def test_a_store_does_what_the_model_does(backend: Backend, name: str) -> None:
    for seed in seeds(backend.name, name):
        await replay(backend, name, seed)


@pytest.mark.parametrize(
    ("rule", "name"),
    [
        ("compare_and_set", "two creators"),
        ("tombstones", "slow promoter"),
        ("mark_creates", "undone and overtaken"),
        ("discard_keeps_nonces", "undone while promoted"),
        ("enqueue_checks_state", "promote twice"),
        ("close_needs_empty", "promote twice"),
        ("remember_nonces", "lost enqueue reply"),
        ("close_counts_moving", "move, lost reply"),
        ("arrivals_are_marked", "move, replaced leader"),
        ("moves_are_fenced", "move, replaced leader"),
        ("dead_letters_need_active", "dead letter, two completions"),
        ("resume_voids", "late claim"),
        ("discard_surplus", "two counts"),
        ("sleep_needs_empty", "sleeps"),
        ("created_asleep", "sleeps, promoted"),
        ("enqueue_wakes", "sleeps"),
        ("withdraw_spares_moving", "withdrawn while it moves"),
        ("withdraw_oldest_first", "withdrawn while it moves"),
        ("withdraw_reads_again", "withdrawn while it moves"),
        ("purge_spares_leased", "purged"),
        ("graves", "deleted and created again"),
        ("replaces_earlier", "deleted and created again"),
    ],
)
async def test_a_store_differs_from_a_model_without_the_rule(
    prefix: str, redis_servers: RedisServers, rule: str, name: str
) -> None:
    """Else the comparison would see nothing."""
    backend = Backend("memory", prefix, redis_servers)
    mutant = PROTOCOL._replace(**{rule: False})

    async def many() -> None:
        for seed in range(400):
            await replay(backend, name, seed, mutant)

    with pytest.raises(AssertionError):
        await many()


def test_the_walks_take_every_step_and_meet_every_misfortune() -> None:
    taken = {
        walked.step.call.method or walked.step.fate
        for name in SCENARIOS
        for seed in seeds("memory", name)
        for walked in walk(Model(SCENARIOS[name]), seed, STEPS)
    }
    fates = {"crashes", "sleeps", "expires", "forgets"}
    moves = {"set_aside", "adopt", "retarget", "let_go", "forget_arrived", "arrivals", "still_aside"}
    letters = {"dead_letters", "adopt_dead", "remove_dead"}
    topology = {"read_topology", "write_topology", "install", "settle", "mark", "close_partition", "remove", "discard"}
    sleeping, deletion = {"sleep", *UNSTORED}, {"read_grave", "delete_partition", "bury_queue"}
    working = {"enqueue", "probe", "claim", "resume", "ack", "fail", "withdraw", "purge"}
    assert taken == fates | moves | letters | topology | sleeping | deletion | working
