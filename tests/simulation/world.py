"""The world of the model: a store, actors, a network that loses and delays, and time that ends leases."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tests.simulation.actors import Role
from tests.simulation.deletion import Deleter
from tests.simulation.leader import Leader
from tests.simulation.producer import Producer, ProducerState
from tests.simulation.reasserter import Reasserter
from tests.simulation.removing import Purger, Withdrawer
from tests.simulation.rules import PROTOCOL, Rules
from tests.simulation.sequences import Keeper, Promoter, finish_calls, install_calls
from tests.simulation.sleeper import Sleeper
from tests.simulation.store import Machine
from tests.simulation.surpasser import Surpasser
from tests.simulation.undoer import Undoer
from tests.simulation.values import (
    Call,
    Counts,
    Enqueue,
    History,
    Job,
    Moved,
    Partition,
    Ref,
    Reply,
    Store,
    Token,
    Topology,
)
from tests.simulation.worker import Worker, WorkerState


class Budget(NamedTuple):
    """How often each misfortune may happen in one run."""

    crashes: int = 0
    lost: int = 0
    """Replies of enqueue, claim and ack that never arrive."""
    late_enqueues: int = 0
    """Requests that arrive at any later time, after the caller stopped to wait for the reply."""
    late_claims: int = 0
    expiries: int = 0
    """Leases that end while their worker lives."""
    forgets: int = 0
    """Last writes of the topology that a failover loses, while other masters keep theirs."""


class World(NamedTuple):
    """One state of everything."""

    store: Store
    actors: tuple[Hashable, ...]
    network: tuple[Call, ...]
    budget: Budget


class Step(NamedTuple):
    """A label of the explorer: what happened. ``actor`` is the number of the actor, -1 for the environment."""

    actor: int
    fate: str
    """answered, lost, late, arrives, crashes, sleeps, expires or forgets."""
    call: Call
    reply: Reply = None


@dataclass(frozen=True, slots=True)
class Setting:
    """A scenario: who acts on which queue, and what may go wrong.

    ``first``: version and partitions that exist at the beginning, None for a queue without topology. ``promoters``:
    for each promoter the (version, partitions) it promotes in turn; ``level``: it sees to it that the last one stays
    the active one. ``edits``: changes of the settings by the keeper, which ``repeats`` what is stored.
    ``promoted``: version and partitions that were promoted after that, before the beginning.
    ``remembers``: a worker knows what it read before a failover. ``leads``: a leader tells partitions what is
    stored, where failovers forget settings.
    ``finishes``: whether the keeper also finishes promotions that others began.
    ``leaders``: how many lead one after the other and move jobs; none of the former notices that it was replaced.
    ``undo``: a version and partitions that somebody undoes while it is unpromoted.
    ``oversleeps``: producers may sleep while a reply is lost. ``fails``: jobs may become dead letters.
    ``fuses``: claims may carry acknowledgements. ``sleeps``: the operator takes the workers away while there is no
    work. ``deletes``: somebody deletes the queue, once. ``withdraws``: somebody cancels the job of that enqueue call,
    by its id. ``purges``: somebody purges what is ready.
    """

    enqueues: Sequence[Enqueue] = ()
    first: tuple[int, int] | None = (1, 1)
    promoted: tuple[int, int] | None = None
    promoters: Sequence[tuple[tuple[int, int], ...]] = ()
    workers: int = 1
    keepers: int = 1
    level: bool = False
    edits: int = 0
    repeats: bool = True
    leaders: int = 0
    finishes: bool = False
    undo: tuple[int, int] | None = None
    budget: Budget = field(default_factory=Budget)
    oversleeps: bool = False
    fails: bool = False
    fuses: bool = False
    sleeps: bool = False
    deletes: bool = False
    withdraws: int | None = None
    purges: bool = False
    remembers: bool = False
    leads: bool = True

    def sizes(self) -> dict[int, int]:
        """Return the most partitions that any actor gives to each version."""
        sizes = dict(given for given in (self.first, self.promoted) if given)
        for number, partitions in [task for tasks in self.promoters for task in tasks]:
            sizes[number] = max(sizes.get(number, 0), partitions)
        return sizes


class Model:
    """A setting under rules, as the functions that the explorer needs."""

    def __init__(self, setting: Setting, rules: Rules = PROTOCOL) -> None:
        self.setting = setting
        self.rules = rules
        refs = [Ref(n, partition) for n, size in sorted(setting.sizes().items()) for partition in range(size)]
        self.machine = Machine(
            refs, setting.enqueues, rules, sleeps=setting.sleeps, forgets=bool(setting.budget.forgets)
        )
        self.roles: list[Role[Any]] = [
            Producer(number, setting.enqueues, rules, gives_up=setting.deletes)
            for number in range(1 + max((enqueue.producer for enqueue in setting.enqueues), default=-1))
        ]
        self.producers = len(self.roles)
        for number in range(setting.workers):
            self.roles.append(Worker(len(self.roles), f"W{number}", rules, fails=setting.fails, fuses=setting.fuses))
        self.workers = range(self.producers, len(self.roles))
        self.roles += [
            Promoter(number, tasks, rules, level=setting.level) for number, tasks in enumerate(setting.promoters)
        ]
        for number in range(setting.keepers):
            keeper = Keeper(
                f"K{number}",
                rules,
                self.machine.ids,
                edits=setting.edits if number == 0 else 0,
                repeats=setting.repeats,
                finishes=setting.finishes,
                forgets=self.machine.forgets,
            )
            self.roles.append(keeper)
        self.roles += [
            Leader(term, self.machine.ids, self.machine.refs, rules) for term in range(1, setting.leaders + 1)
        ]
        if setting.budget.forgets and rules.reassert:
            self.roles.append(Reasserter(self.machine))
        if setting.budget.forgets and setting.edits and rules.surpass:
            if setting.leads:
                self.roles.append(Surpasser("S", rules, remembers=False))
            if setting.remembers:
                self.roles.append(Surpasser("R", rules, remembers=True))
        if setting.undo:
            self.roles.append(Undoer(*setting.undo))
        if setting.sleeps:
            self.roles.append(Sleeper(rules))
        if setting.deletes:
            self.roles.append(Deleter())
        if setting.withdraws is not None:
            self.roles.append(Withdrawer(setting.withdraws, setting.enqueues, rules))
        if setting.purges:
            self.roles.append(Purger())

    def initial(self) -> World:
        topology = Topology.created(*self.setting.first) if self.setting.first else None
        listed = topology.refs(topology.active) if topology else ()
        of = topology if self.machine.forgets else None
        created = Partition("active", 1, len(listed), of=of, asleep=self.machine.rules.created_asleep)
        partitions = tuple(created if ref in listed else None for ref in self.machine.refs)
        nothing = (0,) * len(self.setting.enqueues)
        store = Store(topology, partitions, History(nothing, nothing, nothing, dropped=nothing, purged=nothing))
        if topology and self.setting.promoted:
            topology = topology.promoted(*self.setting.promoted)
            phases = (*install_calls(topology, store.topology), *finish_calls(topology))
            for call in (call for phase in phases for call in phase):
                store, _ = self.machine.apply(store, call)
            store = store._replace(topology=topology)
        return World(store, tuple(role.start() for role in self.roles), (), self.setting.budget)

    # ---- steps ----------------------------------------------------------------------------------------------------

    def successors(self, world: World) -> Iterator[tuple[Step, World]]:
        for number, role in enumerate(self.roles):
            local = world.actors[number]
            if number in self.workers and not world.store.workers:
                continue
            for move in role.moves(local, world.store):
                yield from self._move(world, number, role, move.local, move.call)
            if world.budget.crashes and (crashed := role.crash(local)) is not None:
                budget = world.budget._replace(crashes=world.budget.crashes - 1)
                actors = _with(world.actors, number, crashed)
                yield Step(number, "crashes", Call("")), world._replace(actors=actors, budget=budget)
        for call in world.network:
            store, reply = self.machine.apply(world.store, call)
            network = list(world.network)
            network.remove(call)
            yield Step(-1, "arrives", call, reply), world._replace(store=store, network=tuple(network))
        if world.budget.forgets and (before := world.store.before) is not None:
            budget = world.budget._replace(forgets=world.budget.forgets - 1)
            store = world.store._replace(topology=before, before=None, history=_forgetting(world.store, before))
            yield Step(-1, "forgets", Call("")), world._replace(store=store, budget=budget)
        yield from self._expiries(world)
        if self.setting.oversleeps:
            for number, local in enumerate(world.actors):
                if isinstance(local, ProducerState) and local.lost and not local.slept:
                    actors = _with(world.actors, number, local._replace(slept=True))
                    yield Step(number, "sleeps", Call("")), world._replace(actors=actors)

    def _move(
        self, world: World, number: int, role: Role[Any], local: Hashable, call: Call
    ) -> Iterator[tuple[Step, World]]:
        store, reply = self.machine.apply(world.store, call)
        if isinstance(reply, Counts) and call.method == "close_partition" and self._may_resend(world, call.ref):
            reply = reply._replace(may_retry=True)
        actors = _with(world.actors, number, role.reply(local, call, reply))
        if call.method == "scale_to_zero":
            actors = self._stopped(actors)
        yield Step(number, "answered", call, reply), World(store, actors, world.network, world.budget)
        budget = world.budget
        if budget.lost and store != world.store and (unknown := role.unknown(local, call)) is not None:
            actors = _with(world.actors, number, unknown)
            spent = budget._replace(lost=budget.lost - 1)
            yield Step(number, "lost", call, reply), World(store, actors, world.network, spent)
        late = {"enqueue": budget.late_enqueues, "claim": budget.late_claims}.get(call.method, 0)
        if late and (unknown := role.unknown(local, call)) is not None:
            actors = _with(world.actors, number, unknown)
            spent = budget._replace(**{f"late_{call.method}s": late - 1})
            network = tuple(sorted((*world.network, call), key=repr))
            yield Step(number, "late", call), World(world.store, actors, network, spent)

    def _stopped(self, actors: tuple[Hashable, ...]) -> tuple[Hashable, ...]:
        """Return the actors after the workers were killed: the hardest way in which they may go."""
        for number in self.workers:
            crashed = self.roles[number].crash(actors[number])
            actors = actors if crashed is None else _with(actors, number, crashed)
        return actors

    def _may_resend(self, world: World, ref: Ref | None) -> bool:
        """Whether a step of unknown outcome went to the partition and its producer has neither an answer nor given up.

        The real thing waits until its clock says that none can be left (`headrace.lifecycle.CLIENT_RETRY_MS`).
        """
        producers = world.actors[: self.producers] if self.rules.linger else ()
        return any(
            isinstance(local, ProducerState) and local.lost and local.lost.ref == ref and not local.slept
            for local in producers
        )

    def _expiries(self, world: World) -> Iterator[tuple[Step, World]]:
        for ref, partition in zip(self.machine.refs, world.store.partitions, strict=True):
            if partition is None:
                continue
            for token in sorted({job.token for job in partition.jobs if job.token and not job.expired}):
                alive = self.holds(world, token)
                if alive and not world.budget.expiries:
                    continue
                jobs = tuple(Job(job.uid, token, True) if job.token == token else job for job in partition.jobs)
                store = self.machine.put(world.store, ref, partition._replace(jobs=jobs))
                budget = world.budget._replace(expiries=world.budget.expiries - alive)
                yield Step(-1, "expires", Call("", ref, token=token)), world._replace(store=store, budget=budget)

    def holds(self, world: World, token: Token) -> bool:
        """Whether a living worker knows of the lease or will learn of it."""
        local = world.actors[token.worker]
        assert isinstance(local, WorkerState)
        known = {known for _, known in (*local.held, *local.acks)}
        return token in known or token == local.asked


def _forgetting(store: Store, before: Topology) -> History:
    """Return the history after a failover that has put ``before`` in the place of the stored topology."""
    history, lost = store.history, store.topology
    assert lost is not None
    if lost.settings != before.settings:
        history = history._replace(forgotten=(*history.forgotten, lost.settings))
    return history


def _with(actors: tuple[Hashable, ...], number: int, local: Hashable) -> tuple[Hashable, ...]:
    return (*actors[:number], local, *actors[number + 1 :])


def describe(model: Model, steps: Sequence[Step]) -> str:
    """Return a trace for people, a line per step."""
    lines = []
    for number, step in enumerate(steps, 1):
        call, who = step.call, model.roles[step.actor].name if step.actor >= 0 else "--"
        where = f" {call.ref.version}:{call.ref.partition}" if call.ref else ""
        job = f" {model.machine.ids[call.uid]}#{call.uid}" if call.uid >= 0 else ""
        epoch = f" e{call.topology.epoch}" if call.topology else ""
        reply = _short(step.reply) if step.fate in ("answered", "lost", "arrives") else ""
        fate = "" if step.fate == "answered" else f" [{step.fate}]"
        lines.append(f"{number:3} {who:3} {call.method}{where}{job}{epoch}{fate}{' -> ' + reply if reply else ''}")
    return "\n".join(lines)


def _short(reply: Reply) -> str:
    if isinstance(reply, Topology):
        versions = ", ".join(f"v{v.number}x{v.partitions} {v.state}" for v in reply.versions)
        return f"e{reply.epoch} ({versions})"
    if isinstance(reply, Counts):
        facts = (reply.state, "dead letters" * bool(reply.dead), "clients may retry" * reply.may_retry)
        return ", ".join(filter(None, facts))
    return f"moved, {reply.state}" if isinstance(reply, Moved) else repr(reply)
