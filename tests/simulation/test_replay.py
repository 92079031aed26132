"""The real stores and `headrace.lifecycle` do, step by step, what the model does on random walks through it."""

from __future__ import annotations

import asyncio
from functools import cache
from itertools import islice

import pytest

from headrace.stores.base import Store
from headrace.stores.memory import MemoryStore
from headrace.stores.redis import RedisStore
from headrace.topology import PartitionRef, Topology
from tests.services.redis import RedisServers, flavours
from tests.simulation.comparison import QUEUE
from tests.simulation.outcomes import OUTCOMES, outcome, shortest_walks
from tests.simulation.replay import Advance, Forget, Replay, Walked, walk
from tests.simulation.rules import PROTOCOL, Rules
from tests.simulation.scenarios import LARGE, SMALL
from tests.simulation.world import Model, describe

SCENARIOS = {**SMALL, **LARGE}
WALKS = {"memory": 8, "redis": 2, "valkey": 2}
STEPS = 60


RARE = {
    "move, replaced leader, three versions": "retarget",
    "move, three versions": "adopt none",
    "dead letter, two completions": "adopt_dead no",
}
"""Outcomes that are far away, and that few walks come to."""


def seeds(backend: str, name: str) -> list[int]:
    """Return which walks to take: some that come, and three that come to a step that is rare in the scenario."""
    found = list(range(WALKS[backend]))
    if wanted := RARE.get(name):
        model = Model(SCENARIOS[name])
        rare = (n for n in range(1000) if any(outcome(walked.step) == wanted for walked in walk(model, n, STEPS)))
        found += islice(rare, 3)
    return found


@cache
def walks_to_outcomes(name: str) -> dict[str, list[Walked]]:
    return shortest_walks(Model(SCENARIOS[name]), OUTCOMES[name])


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
    await replay_steps(backend, model, walk(model, seed, STEPS), seed)


async def replay_steps(backend: Backend, model: Model, steps: list[Walked], number: int) -> None:
    store = backend.open(number)
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


@pytest.mark.parametrize("name", OUTCOMES)
async def test_a_store_comes_to_every_outcome_of_every_step_as_the_model_does(backend: Backend, name: str) -> None:
    for number, steps in enumerate(walks_to_outcomes(name).values()):
        await replay_steps(backend, Model(SCENARIOS[name]), steps, number)


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
        ("edits_surpass", "settings forgotten"),
        ("known_is_later", "settings forgotten, remembered"),
        ("compare_content", "one epoch, promoted"),
        ("stamps", "one epoch, finished"),
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


def walked_on_a_server() -> set[str]:
    """Return the outcomes of the steps that the replays take on every server."""
    by_chance = {
        outcome(walked.step)
        for name in SCENARIOS
        for seed in seeds("redis", name)
        for walked in walk(Model(SCENARIOS[name]), seed, STEPS)
    }
    return by_chance | {outcome for outcomes in OUTCOMES.values() for outcome in outcomes}


def test_the_replays_take_every_step_and_meet_every_misfortune_on_every_server() -> None:
    taken = walked_on_a_server()
    steps = set(Model(SCENARIOS["move"]).machine.steps) | {"crashes", "sleeps", "expires", "forgets", "late"}
    assert {name.partition(" ")[0] for name in taken} == steps
    assert taken >= set(RARE.values())


def test_whatever_chance_comes_to_is_replayed_on_every_server() -> None:
    """A walk that finds an outcome of a new kind says so here; give it a place in `OUTCOMES` then."""
    seen = {
        outcome(walked.step)
        for name in SCENARIOS
        for seed in range(WALKS["memory"])
        for walked in walk(Model(SCENARIOS[name]), seed, STEPS)
    }
    assert seen - walked_on_a_server() == set()
