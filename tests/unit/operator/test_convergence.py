"""Whatever happens to a queue and whenever the operator dies, it ends up as the spec says, and never goes back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.producer import JobSpec, Producer
from headrace.stores.base import Settled
from headrace.stores.memory import MemoryStore
from headrace_operator import steps
from headrace_operator.api.names import QueueKey
from headrace_operator.apply import Applier
from headrace_operator.kubernetes.autoscalers import Autoscalers
from headrace_operator.kubernetes.client import Kube, queue_versions, queues
from headrace_operator.kubernetes.events import Recorder
from headrace_operator.kubernetes.recent import Recent
from headrace_operator.memory import Memory
from headrace_operator.metrics import OperatorMetrics
from headrace_operator.observe import Observer
from headrace_operator.reconciler import Reconciler, go_on
from headrace_operator.redis.connection import Connections
from headrace_operator.steps import Step
from tests.unit.operator.api_in_memory import ApiInMemory

KEY = QueueKey("ns", "mail")
PATH = f"{queues('ns')}/mail"
URL = "redis://memory"


class Killed(Exception):
    """The operator died here."""


@dataclass
class World:
    """One Queue with its API server, its Redis and a succession of operators."""

    api: ApiInMemory = field(default_factory=ApiInMemory)
    metrics: OperatorMetrics = field(default_factory=OperatorMetrics)
    now: int = 1_700_000_000_000
    promoted: list[int] = field(default_factory=list)
    claims: int = 0
    jobs: int = 0
    """Jobs that were enqueued and not yet acknowledged."""

    def __post_init__(self) -> None:
        self.store = MemoryStore(lambda: self.now)

    async def life(self, steps_until_death: int | None = None) -> None:
        """One operator: a pass, or as much of it as it lives for; settling at its start does not count."""
        left = steps_until_death

        async def after(step: Step) -> None:
            nonlocal left
            if isinstance(step, steps.Promote):
                self.promoted.append(step.version)
            if left is not None and not isinstance(step, steps.Settle):
                left -= 1
                if left <= 0:
                    raise Killed

        connections, reconciler = self.operator(Recent(self.seconds), after)
        try:
            await reconciler.reconcile(KEY)
        except Killed:
            pass
        finally:
            await connections.close()

    def operator(
        self,
        recent: Recent,
        after_step: Callable[[Step], Awaitable[None]] = go_on,
        open_url: Callable[[str], Any] | None = None,
    ) -> tuple[Connections, Reconciler]:
        """The parts of one operator; who asked for it closes the connections."""
        kube, memory = cast(Kube, self.api), Memory()
        connections = Connections(kube, clock=self.seconds, open_url=open_url or (lambda _: self.store.clone()))
        autoscalers = Autoscalers(kube, self.seconds)
        observer = Observer(kube, connections, memory, "cluster", self.utc, autoscalers, recent)
        reconciler = Reconciler(
            kube,
            connections,
            observer,
            Applier(kube, memory, recent, self.seconds),
            Recorder(kube, self.seconds),
            memory,
            recent,
            clock=self.seconds,
            after_step=after_step,
            metrics=self.metrics,
        )
        return connections, reconciler

    def utc(self) -> datetime:
        return datetime.fromtimestamp(self.seconds(), UTC)

    def seconds(self) -> float:
        return self.now / 1000

    async def rest(self) -> None:
        """Passes until nothing is left to do now."""
        for _ in range(3):
            self.now += 6_000
            await self.life()

    async def create(self) -> None:
        spec = {
            "version": 1,
            "partitions": 2,
            "connection": {"url": URL},
            "historyLimit": 100,
            "maxDrainingVersions": 64,
        }
        body = {"kind": "Queue", "metadata": {"name": "mail", "namespace": "ns"}, "spec": spec}
        await self.api.create(queues("ns"), body, manager="user")

    @property
    def queue(self) -> dict[str, Any]:
        return self.api.objects[PATH]

    def versions(self) -> dict[int, str]:
        prefix = queue_versions("ns") + "/"
        found = [body for path, body in self.api.objects.items() if path.startswith(prefix)]
        return {body["spec"]["version"]: body.get("status", {}).get("phase", "Pending") for body in found}

    async def set_version(self, version: int, partitions: int) -> None:
        await self.api.merge(PATH, {"spec": {"version": version, "partitions": partitions}}, manager="user")

    async def enqueue(self, number: int) -> None:
        producer = Producer(self.store.clone())
        await producer.enqueue_many("mail", [JobSpec("count") for _ in range(number)])
        self.jobs += number

    async def work_off(self) -> None:
        topology = await self.store.read_topology("mail")
        assert topology is not None
        for version in topology.versions:
            for ref in topology.refs(version):
                self.claims += 1
                claim = await self.store.claim(ref, "test", self.claims, 256, 30_000)
                await self.store.ack(ref, [Settled(job.key, claim.token) for job in claim.jobs])
                self.jobs -= len(claim.jobs)

    def lose_everything(self) -> None:
        self.store = MemoryStore(lambda: self.now)
        self.jobs = 0

    def lose_topology(self) -> None:
        del self.store._data.topologies["mail"]


ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("bump"), st.integers(1, 5)),
        st.tuples(st.just("undo"), st.none()),
        st.tuples(st.just("enqueue"), st.integers(1, 6)),
        st.tuples(st.just("work off"), st.none()),
        st.tuples(st.just("flush"), st.none()),
        st.tuples(st.just("remove the topology"), st.none()),
        st.tuples(st.just("die"), st.integers(1, 8)),
        st.tuples(st.just("live"), st.none()),
    ),
    max_size=12,
)


@given(actions=ACTIONS)
@pytest.mark.timeout(300)
@settings(max_examples=150, deadline=None)
def test_K2_O1_O2_any_history_ends_as_the_spec_says_and_no_number_goes_back(actions: list[tuple[str, Any]]) -> None:
    asyncio.run(play(actions))


async def play(actions: list[tuple[str, Any]]) -> None:
    world = World()
    await world.create()
    highest = epoch = 0
    for action, argument in actions:
        status = world.queue.get("status", {})
        match action:
            case "bump":
                await world.set_version(world.queue["spec"]["version"] + 1, argument)
            case "undo" if "activeVersion" in status:  # as admission allows it
                await world.set_version(status["activeVersion"], status["activePartitions"])
            case "enqueue" if await world.store.read_topology("mail") is not None:
                await world.enqueue(argument)
            case "work off" if await world.store.read_topology("mail") is not None:
                await world.work_off()
            case "flush":
                await world.rest()  # what was never reported cannot be known after a loss
                world.lose_everything()
                await world.life()
                assert world.queue["status"]["dataLossEpoch"] == world.queue["status"]["topologyEpoch"]
            case "remove the topology":
                await world.rest()
                before = await world.store.read_topology("mail")
                assert before is not None
                world.lose_topology()
                await world.life()
                after = await world.store.read_topology("mail")
                assert after is not None
                assert (after.active, dict(after.versions)) == (before.active, dict(before.versions))
                assert after.epoch > before.epoch
            case "die":
                await world.life(argument)
            case "live":
                await world.life()
        topology = await world.store.read_topology("mail")
        if topology is not None:
            assert topology.highest >= highest
            assert topology.epoch >= epoch
            highest, epoch = topology.highest, topology.epoch

    await world.rest()
    topology = await world.store.read_topology("mail")
    assert topology is not None
    spec = world.queue["spec"]
    conditions = {condition["type"]: condition for condition in world.queue["status"]["conditions"]}
    if conditions["Stalled"]["status"] == "True":
        # An undo that came too late: the promoted version stays, and the message says how to go on.
        assert conditions["Stalled"]["reason"] == "InvalidSpec"
        assert topology.active > spec["version"]
        await world.set_version(topology.highest + 1, 3)
        await world.rest()
        topology = await world.store.read_topology("mail")
        assert topology is not None
    assert (topology.active, topology.partitions) == (world.queue["spec"]["version"], world.queue["spec"]["partitions"])
    assert world.promoted == sorted(set(world.promoted))

    await world.work_off()
    assert world.jobs == 0
    await world.rest()
    topology = await world.store.read_topology("mail")
    assert topology is not None
    assert set(topology.versions) == {topology.active}
    phases = world.versions()
    assert phases.pop(topology.active) == "Active"
    assert set(phases.values()) <= {"Completed", "Superseded", "Failed"}
    conditions = {condition["type"]: condition["status"] for condition in world.queue["status"]["conditions"]}
    assert (conditions["Ready"], conditions["Draining"], conditions["Reconciling"]) == ("True", "False", "False")
    assert all(count.state == "active" for count in await world.store.counts(topology.refs(topology.active)))


async def test_a_pass_over_a_queue_at_rest_writes_nothing() -> None:
    world = World()
    await world.create()
    await world.rest()
    before = {path: body["metadata"]["resourceVersion"] for path, body in world.api.objects.items()}
    await world.enqueue(1)
    await world.rest()
    changed = {path for path, body in world.api.objects.items() if body["metadata"]["resourceVersion"] != before[path]}
    assert changed == {PATH}  # one job more: a measurement that left zero
    before = {path: body["metadata"]["resourceVersion"] for path, body in world.api.objects.items()}
    await world.rest()
    assert before == {path: body["metadata"]["resourceVersion"] for path, body in world.api.objects.items()}


@pytest.mark.parametrize("deaths", range(1, 12))
async def test_K2_a_bump_whose_operator_dies_after_each_number_of_steps_is_promoted_once(deaths: int) -> None:
    world = World()
    await world.create()
    await world.rest()
    await world.enqueue(5)
    await world.set_version(2, 8)
    for _ in range(30):
        await world.life(deaths)
    await world.work_off()
    await world.rest()
    assert world.promoted == [1, 2]
    assert world.versions() == {1: "Completed", 2: "Active"}
