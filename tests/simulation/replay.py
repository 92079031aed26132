"""Replays of the model on a real store.

A walk through the model is done again with the store's own steps: producers, workers and the network call the store
as the model says, while promoters and keepers are the coroutines of `headrace.lifecycle`, let go one call at a time.
After every step the reply, the topology and what each partition holds must be those of the model.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, NamedTuple, cast

from headrace import agreement, lifecycle, migration
from headrace.deletion import delete_queue
from headrace.envelope import encode_body
from headrace.errors import Fenced
from headrace.stores import base
from headrace.topology import PartitionRef
from headrace.topology import Topology as StoredTopology
from headrace.withdrawal import _withdraw
from tests.simulation.comparison import (
    MOVES,
    QUEUE,
    as_stored,
    at_time,
    comparable,
    expected_call,
    expected_facts,
    key,
    moved,
    nonce_of,
    ref_of,
    settings,
    stored,
    stored_facts,
    topology_of,
    worker_of,
)
from tests.simulation.deletion import Deleter, DeleterState
from tests.simulation.leader import Leader, LeaderState
from tests.simulation.reasserter import Reasserter, ReasserterState
from tests.simulation.removing import Withdrawer, WithdrawerState
from tests.simulation.sequences import Keeper, KeeperState, Promoter, PromoterState
from tests.simulation.stepped import Stepped
from tests.simulation.surpasser import Surpasser, SurpasserState
from tests.simulation.values import Arrivals, Aside, Call, Counts, Grave, Reply, Topology
from tests.simulation.world import Model, Step, World

LONG_MS = 3_600_000
UNSTORED = ("wake", "read_wakes", "scale_to_zero", "scale_up", "sweep")
"""Steps of the model that are not steps of a store: the stream of wakes, and what the operator does with workers."""

SEQUENCES = (Promoter, Keeper, Deleter, Leader, Reasserter, Surpasser, Withdrawer)
"""Roles that are coroutines of the real thing."""

Advance = Callable[[int], Awaitable[None]]
Forget = Callable[[StoredTopology], Awaitable[None]]
"""Put an earlier topology in the place of the stored one, as a failover does."""


class Walked(NamedTuple):
    """A step of a walk and the states around it."""

    before: World
    step: Step
    after: World


def walk(model: Model, seed: int, most: int) -> list[Walked]:
    """Return a random walk from the initial state: at most ``most`` steps, each of which changes something."""
    rng = random.Random(seed)
    world = model.initial()
    steps: list[Walked] = []
    while len(steps) < most:
        ways = [(step, after) for step, after in model.successors(world) if after != world]
        if not ways:
            break
        step, after = rng.choice(ways)
        steps.append(Walked(world, step, after))
        world = after
    return steps


class Replay:
    """Does the steps of a walk on ``store``, which is empty. ``advance`` lets its clock go on by some ms.

    ``forget``: see `Forget`.
    """

    def __init__(self, model: Model, store: base.Store, advance: Advance, forget: Forget) -> None:
        self.model = model
        self.store = store
        self._advance = advance
        self._forget = forget
        self._sequences: dict[int, Stepped] = {}
        self._heard = b""
        self._ahead: list[Walked] = []

    async def run(self, steps: list[Walked]) -> None:
        """Do every step and compare; raise AssertionError at the first difference."""
        if self.model.setting.first:
            await lifecycle.promote(self.store, QUEUE, *self.model.setting.first)
        if self.model.setting.promoted:
            await lifecycle.promote(self.store, QUEUE, *self.model.setting.promoted)
        self._heard = await self.store.last_wake()
        try:
            for at, walked in enumerate(steps):
                self._ahead = steps[at:]
                await self._step(walked)
                await self._compare(walked.after)
        finally:
            for sequence in self._sequences.values():
                await sequence.kill()

    async def _step(self, walked: Walked) -> None:
        step = walked.step
        role = self.model.roles[step.actor] if step.actor >= 0 else None
        if step.fate == "expires":
            await self._expire(walked)
        elif step.fate == "crashes":
            if sequence := self._sequences.pop(step.actor, None):
                await sequence.kill()
        elif step.fate == "forgets":
            topology = walked.after.store.topology
            assert topology is not None
            await self._forget(stored(topology))
        elif step.fate in ("late", "sleeps"):
            pass  # the store has not seen it yet, or never will
        elif isinstance(role, SEQUENCES):
            await self._sequence_step(walked)
        elif step.call.method not in UNSTORED:
            assert await self._call(step.call) == comparable(step.call, step.reply, self.model)
            if self.model.setting.sleeps:
                await self._compare_wakes(walked)

    async def _compare_wakes(self, walked: Walked) -> None:
        """On these stores a wake is a part of the enqueue, so it is there when the partition has woken."""
        ref = walked.step.call.ref
        before, after = (ref and self.model.machine.at(world.store, ref) for world in (walked.before, walked.after))
        woke = bool(before and after and before.asleep and not after.asleep)
        wakes = await self.store.wait_wakes(self._heard, 0.001)
        assert wakes.queues == ((QUEUE,) if woke else ())
        self._heard = wakes.cursor

    async def _expire(self, walked: Walked) -> None:
        """End the leases of one token only: shorten them, and let that time pass."""
        call = walked.step.call
        partition = self.model.machine.at(walked.before.store, call.ref)
        assert partition is not None
        assert call.token is not None
        leases = [self._settled(job.uid, call.token) for job in partition.jobs if job.token == call.token]
        assert await self.store.renew(ref_of(call.ref), leases, 1) == []
        await self._advance(2)

    # ---- sequences of headrace.lifecycle ---------------------------------------------------------------------------

    async def _sequence_step(self, walked: Walked) -> None:
        step, number = walked.step, walked.step.actor
        before, after = walked.before.actors[number], walked.after.actors[number]
        if number not in self._sequences:
            counted = isinstance(after, SurpasserState)
            self._sequences[number] = Stepped(self.store, self._sequence(walked), counted=counted)
        uids = (step.call.uid,) if step.call.method == "withdraw" else step.call.uids
        request = await self._sequences[number].next(
            expected_call(step.call, sorted(self._key(uid)[1:] for uid in uids))
        )
        try:
            reply = await getattr(self.store, request.method)(*request.arguments, **request.options)
        except Fenced as error:
            assert step.reply == "fenced"
            request.reply.set_exception(error)
            await self._sequences.pop(number).ended()
            return
        if step.call.method == "withdraw":
            assert reply == [step.reply]
        elif step.call.method in MOVES:
            assert moved(request, reply) == self._as_moved(step.reply)
        elif step.call.method == "counts":
            assert isinstance(step.reply, Counts)
            (found,) = reply
            assert found.state == step.reply.state
            if found.state in ("active", "draining"):
                assert (found.epoch, found.of) == (
                    step.reply.epoch,
                    stored(step.reply.of).stamp if step.reply.of else "",
                )
        elif isinstance(reply, base.Counts):
            assert isinstance(step.reply, Counts)
            reply = at_time(reply, clients_may_retry=step.reply.may_retry)
            assert (reply.state, reply.dead) == (step.reply.state, step.reply.dead)
        elif isinstance(step.reply, Topology | Grave) or step.reply is None:
            assert reply == as_stored(step.reply)
        else:
            assert reply == step.reply
        request.reply.set_result(reply)
        if _over(before, after):
            await self._sequences.pop(number).ended()

    def _sequence(self, walked: Walked) -> Callable[[base.Store], Coroutine[Any, Any, Any]]:
        """Return the coroutine whose first call is this step."""
        number, topology = walked.step.actor, walked.before.store.topology
        role, local = self.model.roles[number], walked.before.actors[number]
        if isinstance(role, Promoter):
            assert isinstance(local, PromoterState)
            version, partitions = role.tasks[min(local.task, len(role.tasks) - 1)]
            return lambda store: lifecycle.promote(store, QUEUE, version, partitions)
        if isinstance(role, Deleter):
            return lambda store: delete_queue(store, QUEUE)
        if isinstance(role, Withdrawer):
            job_id = self.model.machine.ids[role.uid]
            return lambda store: _withdraw(store, QUEUE, [job_id], running=True)
        assert topology is not None
        if isinstance(role, Reasserter):
            after = walked.after.actors[number]
            assert isinstance(after, ReasserterState)
            known = stored(after.known or role.remembered(walked.before.store)[0])
            return lambda store: lifecycle.reassert(store, known, proven=True)
        if isinstance(role, Surpasser):
            return self._surpassing(number)
        if isinstance(role, Leader):
            fence = base.Fence(role.term, f"term {role.term}")
            if walked.step.call.method == "arrivals":
                arrived = ref_of(walked.step.call.ref)
                return lambda store: migration.tidy_arrivals(store, arrived, fence)
            after = walked.after.actors[number]
            assert isinstance(after, LeaderState)
            source = ref_of(after.ref)
            return lambda store: migration.move_jobs(store, source, fence)
        task, chosen = self._task(walked)
        if task == "complete":
            return lambda store: lifecycle.complete(store, QUEUE, chosen)
        if task == "finish":
            return lambda store: lifecycle.promote(store, QUEUE, topology.active, topology.partitions)
        assert isinstance(role, Keeper)
        assert isinstance(local, KeeperState)
        given = role.edits - local.edits + 1 if task == "configure" else topology.settings
        return lambda store: lifecycle.configure(store, QUEUE, settings(given))

    def _surpassing(self, number: int) -> Callable[[base.Store], Coroutine[Any, Any, Any]]:
        """Return what the leader does, or `headrace.worker.recall` at the partition that the model chooses."""
        role, local = self.model.roles[number], self._ahead[0].before.actors[number]
        assert isinstance(role, Surpasser)
        assert isinstance(local, SurpasserState)
        known = stored(local.known) if local.known else None
        steps = (walked.step for walked in self._ahead if walked.step.actor == number)
        chosen = next((ref_of(step.call.ref) for step in steps if step.call.method == "counts"), None)

        async def look(store: base.Store) -> None:
            topology = await store.read_topology(QUEUE)
            assert topology is not None
            if not role.remembers:
                await agreement.surpass_epoch(store, topology, await agreement.settle_all(store, topology))
            else:
                (counts,) = await store.counts([chosen or topology.refs(topology.active)[0]])
                await agreement.surpass_epoch(store, topology, counts.ahead(topology), known=known)

        return look

    def _task(self, walked: Walked) -> tuple[str, int]:
        """Return what a keeper begins with this step: among its moves, the one that leads there."""
        number, world = walked.step.actor, walked.before
        role = self.model.roles[number]
        for move in role.moves(world.actors[number], world.store):
            store, reply = self.model.machine.apply(world.store, move.call)
            if (store, role.reply(move.local, move.call, reply)) == (walked.after.store, walked.after.actors[number]):
                assert isinstance(move.local, KeeperState)
                return move.local.task, move.local.version
        raise AssertionError(f"no move of {role.name} leads there")

    def _as_moved(self, reply: Reply) -> object:
        """Return the model's reply to a step that moves jobs or dead letters, with ids as they are stored."""
        if isinstance(reply, Aside):
            return sorted((self._key(uid)[1:], to) for uid, to in reply.jobs)
        if isinstance(reply, Arrivals):
            return sorted((self._key(uid)[1:], ref_of(source)) for uid, source in reply.jobs)
        if isinstance(reply, tuple):
            return sorted(self._key(uid)[1:] for uid in cast(tuple[int, ...], reply))
        return reply

    # ---- single calls ----------------------------------------------------------------------------------------------

    async def _call(self, call: Call) -> object:
        """Make a call of a producer, a worker or whoever undoes; the reply in comparable form."""
        store, ref = self.store, ref_of(call.ref)
        match call.method:
            case "read_topology":
                return await store.read_topology(QUEUE)
            case "settle":
                return await store.settle(ref, topology_of(call))
            case "discard":
                return await store.discard(ref)
            case "sleep":
                return (await store.sleep(ref, LONG_MS)).asleep
            case "probe":
                nonce = nonce_of(call) if call.nonce else b""
                return (await store.probe(ref, topology_of(call), [(self._key(call.uid), nonce)]))[0]
            case "enqueue":
                job = base.NewJob(self._key(call.uid), 0, encode_body("send", call.uid))
                reply = await store.enqueue(ref, call.number, nonce_of(call), [job], call.incarnation)
                if isinstance(reply, base.Moved):
                    return reply
                return "existing" if reply.existing else "accepted"
            case "claim":
                acks = [self._settled(*settled) for settled in call.settled]
                claim = await store.claim(ref, *worker_of(call), 100, LONG_MS, acks)
                return sorted(job.key for job in claim.jobs), claim.gone
            case "resume":
                claim = await store.resume(ref, *worker_of(call), LONG_MS)
                return sorted(job.key for job in claim.jobs), claim.gone
            case "purge":
                return await self._purge(ref)
            case "ack":
                return tuple(await store.ack(ref, [self._settled(*settled) for settled in call.settled]))
            case _:
                assert call.method == "fail"
                held = [self._settled(*settled) for settled in call.settled]
                failures = [base.Failure(key, token, None, "failed for good") for key, token in held]
                return tuple(await store.fail(ref, failures))

    async def _purge(self, ref: PartitionRef) -> int:
        """Purge what is ready there, index by index; how many there were."""
        sought, matching = base.Sought(1 << 50), 0
        for index in base.INDEXES["ready"]:
            while not (step := await self.store.purge(ref, index, sought, 0)).end:
                matching += step.matching
        return matching

    def _key(self, uid: int) -> bytes:
        return key(self.model.machine.ids[uid])

    def _settled(self, uid: int, token: tuple[int, int]) -> base.Settled:
        return base.Settled(self._key(uid), b"w%d:%d" % token)

    # ---- comparison ------------------------------------------------------------------------------------------------

    async def _compare(self, world: World) -> None:
        topology = world.store.topology
        assert await self.store.read_topology(QUEUE) == (stored(topology) if topology else None)
        found = await self.store.counts([ref_of(ref) for ref in self.model.machine.refs])
        for ref, partition, counts in zip(self.model.machine.refs, world.store.partitions, found, strict=True):
            expected = ("absent", 0, 0, 0, 0, 0)
            if partition:
                leased = sum(job.token is not None for job in partition.jobs)
                moving, arrived = len(partition.moving), len(partition.arrived)
                ready = len(partition.jobs) - leased
                expected = (partition.state, ready, leased, moving, arrived, len(partition.dead))
            found_here = (counts.ready, counts.leased, counts.moving, counts.arrived)
            assert (counts.state, *found_here, counts.dead) == expected, f"partition {ref}"
            assert counts.live == sum(found_here)
            if partition:
                sleeps = self.model.setting.sleeps
                at, stamped = ref_of(ref), partition.of is not None
                facts = await stored_facts(self.store, at, partition.state, sleeps=sleeps, stamped=stamped)
                assert facts == expected_facts(partition, sleeps=sleeps), f"partition {ref}"


def _over(before: object, after: object) -> bool:
    """Whether a promoter, keeper, leader or deleter has come to the end of its task."""
    if isinstance(after, DeleterState | WithdrawerState):
        return after.at == "over"
    if isinstance(after, ReasserterState):
        return after.known is None
    if isinstance(after, SurpasserState):
        return after.topology is None
    if isinstance(before, PromoterState) and isinstance(after, PromoterState):
        return after.task > before.task
    assert isinstance(after, KeeperState | LeaderState)
    return not after.task
