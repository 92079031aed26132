"""The sequences of `headrace.lifecycle` as roles: promote, configure, complete.

They are step for step what the code does; ``test_replay.py`` drives the code itself along traces of this model. The
steps of one phase are done in any order, and the next phase begins when all of them are done.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import NamedTuple, cast

from tests.simulation.actors import Move
from tests.simulation.rules import Rules
from tests.simulation.values import Agreed, Call, Counts, Grave, Ref, Reply, Store, Topology, route

Phases = tuple[tuple[Call, ...], ...]


def open_calls(phases: Phases, done: int) -> list[Call]:
    """Return the calls that may come next. ``done``: one bit per call, in the order of the phases."""
    first = 0
    for phase in phases:
        left = [call for number, call in enumerate(phase, first) if not done >> number & 1]
        if left:
            return left
        first += len(phase)
    return []


def with_done(phases: Phases, done: int, call: Call) -> int:
    """Return ``done`` with one more call; of equal ones the first that is open."""
    calls = [each for phase in phases for each in phase]
    return done | 1 << next(number for number, each in enumerate(calls) if each == call and not done >> number & 1)


@cache
def install_calls(target: Topology, read: Topology | Grave | None) -> Phases:
    """Return the steps of `headrace.lifecycle.provision`: the settings are those of what was read, if there was any."""
    basis = read if isinstance(read, Topology) else target._replace(epoch=target.epoch - 1)
    return (tuple(Call("install", ref, basis, target.partitions) for ref in target.refs(target.active)),)


@cache
def mark_calls(topology: Topology) -> tuple[Call, ...]:
    return tuple(Call("mark", ref, topology) for version in topology.older for ref in topology.refs(version.number))


@cache
def finish_calls(topology: Topology) -> Phases:
    """Return the steps of `headrace.lifecycle.finish_promote`."""
    settles = tuple(Call("settle", ref, topology) for ref in topology.refs(topology.active))
    return settles, mark_calls(topology)


@cache
def settle_calls(topology: Topology) -> Phases:
    """Return the last steps of `headrace.lifecycle.configure`."""
    refs = (ref for version in topology.versions for ref in topology.refs(version.number))
    return (tuple(Call("settle", ref, topology) for ref in refs),)


@cache
def drain_calls(topology: Topology, number: int) -> Phases:
    """Return the steps of `headrace.lifecycle.close_drained`."""
    refs = topology.refs(number)
    return tuple(Call("mark", ref, topology) for ref in refs), tuple(Call("close_partition", ref) for ref in refs)


@cache
def remove_calls(topology: Topology, number: int) -> Phases:
    return (tuple(Call("remove", ref, incarnation=topology.incarnation) for ref in topology.refs(number)),)


class PromoterState(NamedTuple):
    """``task``: index into the versions to promote. ``at``: part of the sequence, ``done``: its calls that are done.

    ``read``: what ``topology`` is to replace, or has. ``ahead``: the epoch of a partition that it has met, for which
    it raises what is stored; ``over``: at its end. ``lost``: something else was stored just now than it had read.
    """

    task: int = 0
    at: str = "read"
    topology: Topology | None = None
    done: int = 0
    lost: bool = False
    read: Topology | Grave | None = None
    ahead: int = 0
    over: bool = False


class Promoter:
    """Promotes versions one after the other, each once; whatever it leaves unfinished when it dies stays so.

    ``level``: unless an older version than its last is active, as an operator sees it, which then promotes that again.
    """

    def __init__(self, number: int, tasks: tuple[tuple[int, int], ...], rules: Rules, *, level: bool) -> None:
        self.name = f"M{number}"
        self.tasks = tasks
        self.rules = rules
        self.level = level

    def start(self) -> PromoterState:
        return PromoterState()

    def moves(self, local: PromoterState, store: Store) -> Iterable[Move]:
        if local.task == len(self.tasks):
            if self.level and self._overlooked(store):
                yield Move(PromoterState(len(self.tasks) - 1), Call("read_topology"))
            return
        topology = local.topology
        if topology is None:
            yield Move(local, Call("read_grave" if local.at == "grave" else "read_topology"))
            return
        if local.at in ("write", "raise"):
            yield Move(local, Call("write_topology", topology=topology, read=local.read))
        else:
            for call in open_calls(self._calls(local), local.done):
                yield Move(local, call)

    def _overlooked(self, store: Store) -> bool:
        """Whether its last version is not the active one; what a partition remembers is written again before that."""
        stored = store.topology
        known = [partition.successor for partition in store.partitions if partition and partition.successor]
        return (
            stored is not None
            and stored.active < self.tasks[-1][0]
            and not any(successor.highest > stored.highest for successor in known)
        )

    def _calls(self, local: PromoterState) -> Phases:
        assert local.topology is not None
        match local.at:
            case "install":
                return install_calls(local.topology, local.read)
            case "finish":
                return finish_calls(local.topology)
            case "raised":
                return settle_calls(local.topology)
            case _:
                assert local.at == "discard"
                return (tuple(Call("discard", ref) for ref in self._surplus(local.topology, *self.tasks[local.task])),)

    @staticmethod
    def _surplus(winner: Topology, number: int, partitions: int) -> tuple[Ref, ...]:
        kept = partitions
        if known := winner.version(number):
            kept = known.partitions
        elif number <= winner.highest or winner.deleting:
            kept = 0
        return tuple(Ref(number, partition) for partition in range(kept, partitions))

    def reply(self, local: PromoterState, call: Call, reply: Reply) -> PromoterState:
        match local.at:
            case "read":
                assert reply is None or isinstance(reply, Topology)
                surplus = self._surplus(reply, *self.tasks[local.task]) if reply and local.lost else ()
                if surplus and self.rules.discard_surplus:
                    return local._replace(at="discard", topology=reply)
                return self._decided(local, reply)
            case "grave":
                assert reply is None or isinstance(reply, Grave)
                created = Topology.created(*self.tasks[local.task], reply)
                return PromoterState(local.task, "install", created, read=reply)
            case "write":
                if reply:
                    return PromoterState(local.task, "finish", local.topology)
                return PromoterState(local.task, lost=True)
            case "raise":
                if reply:
                    return local._replace(at="raised", ahead=0, done=0)
                return self._begun_anew(local)
        if isinstance(reply, Agreed) and self.rules.promotes_surpass:
            local = local._replace(ahead=max(local.ahead, reply.ahead))
        phases = self._calls(local)
        done = with_done(phases, local.done, call)
        if open_calls(phases, done):
            return local._replace(done=done)
        return self._ended(local._replace(done=0))

    def _ended(self, local: PromoterState) -> PromoterState:
        """Return where to go on after a phase."""
        if local.at == "discard":
            return self._decided(local, local.topology)
        read = local.read if local.at == "install" else local.topology
        if local.ahead and isinstance(read, Topology):  # a topology that is created has none to raise
            raised = read.surpassing(local.ahead, None)
            return local._replace(at="raise", topology=raised, read=read, over=local.over or local.at == "finish")
        if local.at == "install":
            return local._replace(at="write", ahead=0)
        return PromoterState(local.task + 1) if local.at == "finish" else self._begun_anew(local)

    @staticmethod
    def _begun_anew(local: PromoterState) -> PromoterState:
        return PromoterState(local.task + 1) if local.over else PromoterState(local.task, lost=True)

    def _decided(self, local: PromoterState, current: Topology | None) -> PromoterState:
        """Return where to go on with the topology that was read."""
        number, partitions = self.tasks[local.task]
        if current is None:
            return local._replace(at="grave")
        if current.deleting:
            return PromoterState(local.task + 1)
        if current.active == number and current.partitions == partitions:
            return PromoterState(local.task, "finish", current)
        if number <= current.highest:
            return PromoterState(local.task + 1)
        return PromoterState(local.task, "install", current.promoted(number, partitions), read=current)

    def unknown(self, local: PromoterState, call: Call) -> PromoterState | None:
        return None

    def crash(self, local: PromoterState) -> PromoterState | None:
        if local.task == len(self.tasks) or local.at in ("read", "grave"):
            return None
        return PromoterState(len(self.tasks))


class KeeperState(NamedTuple):
    """``task``: finish, complete, configure or settle; ``version`` of complete. ``reason`` says why not, if set.

    ``edits``: settings still to be changed. ``settled``: the newest settings that a `configure` has returned with.
    ``read``: what ``topology`` is to replace. ``newest``: the epoch of a partition that is ahead of it. ``agreed``: the
    topology that it has just made all partitions agree with, where failovers forget. ``holding``: partitions with dead
    letters; ``letters``: those of the first of them, ``copied``: so far.
    """

    edits: int
    task: str = ""
    version: int = 0
    at: str = "read"
    topology: Topology | None = None
    done: int = 0
    reason: str = ""
    settled: int = 0
    holding: tuple[Ref, ...] = ()
    letters: tuple[int, ...] = ()
    copied: tuple[int, ...] = ()
    newest: int = 0
    agreed: Topology | None = None
    read: Topology | None = None


class Keeper:
    """Level-triggered care of the topology, as the operator or a leader gives it; it starts anew after a crash."""

    def __init__(
        self,
        name: str,
        rules: Rules,
        ids: tuple[str, ...],
        *,
        edits: int = 0,
        repeats: bool = False,
        finishes: bool = False,
        forgets: bool = False,
    ) -> None:
        self.name = name
        self.rules = rules
        self.ids = ids
        self.edits = edits
        self.repeats = repeats
        self.finishes = finishes
        self.forgets = forgets

    def start(self) -> KeeperState:
        return KeeperState(self.edits)

    def moves(self, local: KeeperState, store: Store) -> Iterable[Move]:
        if not local.task:
            yield from self._tasks(local, store)
        elif local.topology is None or local.at == "reread":
            yield Move(local, Call("read_topology"))
        elif local.at in ("write", "raise"):
            yield Move(local, Call("write_topology", topology=local.topology, read=local.read))
        elif local.at == "letters":
            yield Move(local, self._letter_call(local, local.topology))
        else:
            for call in open_calls(self._calls(local), local.done):
                yield Move(local, call)

    def _letter_call(self, local: KeeperState, topology: Topology) -> Call:
        """Return the next step of `headrace.lifecycle.move_dead_letters`."""
        if not local.letters:
            return Call("dead_letters", local.holding[0])
        left = [uid for uid in local.letters if uid not in local.copied]
        if not left:
            return Call("remove_dead", local.holding[0], uids=local.letters)
        version = topology.version(topology.active)
        assert version is not None
        target = min(route(self.ids[uid], version) for uid in left)
        return Call("adopt_dead", target, uids=tuple(uid for uid in left if route(self.ids[uid], version) == target))

    def _tasks(self, local: KeeperState, store: Store) -> Iterable[Move]:
        """Begin a task whenever the stored topology gives cause for it."""
        if store.topology is None:
            return
        read = Call("read_topology")
        local = local._replace(agreed=None)
        for version in store.topology.older:
            yield Move(local._replace(task="complete", version=version.number), read)
        if local.edits:
            yield Move(local._replace(task="configure", edits=local.edits - 1), read)
        if self.finishes:
            yield Move(local._replace(task="finish"), read)
        if self.repeats and local.edits < self.edits:
            yield Move(local._replace(task="settle"), read)

    def _calls(self, local: KeeperState) -> Phases:
        assert local.topology is not None
        if local.task in ("configure", "settle") or local.at == "raised":
            return settle_calls(local.topology)
        if local.task == "finish":
            return finish_calls(local.topology)
        if local.at in ("drain", "again"):
            return drain_calls(local.topology, local.version)
        return remove_calls(local.topology, local.version)

    def _rest(self, local: KeeperState) -> KeeperState:
        return KeeperState(local.edits, settled=local.settled)

    def reply(self, local: KeeperState, call: Call, reply: Reply) -> KeeperState:
        if call.method == "read_topology":
            assert reply is None or isinstance(reply, Topology)
            if local.at == "reread" and (reply is None or reply.deleting):
                return self._agreed(local)
            return self._rest(local) if reply is None or reply.deleting else self._read(local, reply)
        if call.method == "write_topology":
            return self._written(local, call, won=bool(reply))
        assert local.topology is not None
        if local.at == "letters":
            return self._lettered(local, call, reply)
        if isinstance(reply, Agreed):
            local = local._replace(newest=max(local.newest, reply.ahead))
        elif isinstance(reply, Counts):
            assert call.ref is not None
            holding = (*local.holding, call.ref) if reply.dead and self.rules.dead_letters_move else local.holding
            local = local._replace(reason=local.reason or self._reason(reply), holding=holding)
        if call.method == "remove" and not reply:
            local = local._replace(reason="NotClosed")
        phases = self._calls(local)
        done = with_done(phases, local.done, call)
        return local._replace(done=done) if open_calls(phases, done) else self._ended(local)

    def _lettered(self, local: KeeperState, call: Call, reply: Reply) -> KeeperState:
        match call.method:
            case "dead_letters":
                if reply:
                    return local._replace(letters=cast(tuple[int, ...], reply))
            case "adopt_dead":
                return local._replace(copied=(*local.copied, *call.uids)) if reply else self._rest(local)
            case _:
                return local._replace(letters=(), copied=())
        holding = local.holding[1:]
        if holding:
            return local._replace(holding=holding)
        return local._replace(at="read", topology=None, holding=())

    def _reason(self, counts: Counts) -> str:
        if counts.state not in ("closed", "tombstone") and self.rules.closed_before_removing:
            return "JobsRemain"
        return "ClientsMayRetry" if counts.may_retry else ""

    def _read(self, local: KeeperState, topology: Topology) -> KeeperState:
        if local.at == "reread":  # it has replaced what was written; with other settings the edit has failed
            assert local.topology is not None
            same = topology.settings == local.topology.settings
            return local._replace(at="calls", topology=topology, newest=0) if same else self._rest(local)
        if local.task == "configure":
            edited = topology.configured(self.edits - local.edits)
            return local._replace(at="write", topology=edited, read=topology)
        if local.task != "complete":
            return local._replace(at="calls", topology=topology)
        version = topology.version(local.version)
        if version is None or version.state == "active":
            return self._rest(local)
        at = "remove" if version.state == "removing" else "drain"
        return local._replace(at=at, topology=topology, done=0, reason="", holding=())

    def _written(self, local: KeeperState, call: Call, *, won: bool) -> KeeperState:
        topology = local.topology
        assert topology is not None
        read, local = local.read, local._replace(read=None, done=0)
        if local.at == "raise":
            if won:
                return local._replace(at="raised", newest=0)
            again = self.rules.edits_insist and local.task != "finish"
            return local._replace(at="reread", topology=read) if again else self._agreed(local._replace(topology=read))
        if not won:
            return local._replace(at="read", topology=None)
        if local.task == "configure":
            return local._replace(at="calls")
        if topology.version(local.version) is None:
            return self._rest(local)
        return local._replace(at="remove", done=0)

    def _ended(self, local: KeeperState) -> KeeperState:
        topology = local.topology
        assert topology is not None
        if local.task != "complete":
            if local.newest and (self.rules.edits_surpass or local.task == "finish"):
                raised = topology.surpassing(local.newest, None)
                return local._replace(at="raise", topology=raised, read=topology, done=0)
            return self._agreed(local)
        if local.at == "remove" and local.reason:  # a failover has forgotten that it was closed
            return local._replace(at="again", done=0, reason="")
        if local.reason:
            return self._rest(local)
        if local.at == "again" and not local.holding:
            return local._replace(at="read", topology=None, done=0)
        if local.holding:
            return local._replace(at="letters", done=0, holding=tuple(sorted(local.holding)))
        target = topology.removing(local.version) if local.at == "drain" else topology.dropped(local.version)
        return local._replace(at="write", topology=target, read=topology, done=0)

    def _agreed(self, local: KeeperState) -> KeeperState:
        """Return the state after what has just returned."""
        if local.task == "finish":
            return self._rest(local)
        assert local.topology is not None
        settled = max(local.settled, local.topology.settings)
        return KeeperState(local.edits, settled=settled, agreed=local.topology if self.forgets else None)

    def unknown(self, local: KeeperState, call: Call) -> KeeperState | None:
        return None

    def crash(self, local: KeeperState) -> KeeperState | None:
        return self._rest(local) if local.task and local.topology is not None else None
