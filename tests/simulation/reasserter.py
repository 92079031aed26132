"""Whoever finds that a partition remembers what the topology has forgotten: `headrace.lifecycle.reassert`.

It stands for all that compare them: workers every few seconds, producers that are refused, the next promotion.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from tests.simulation.actors import Move
from tests.simulation.sequences import Phases, mark_calls, open_calls, settle_calls, with_done
from tests.simulation.store import Machine
from tests.simulation.values import Agreed, Call, Reply, Store, Topology


class ReasserterState(NamedTuple):
    """``known``: what a partition remembers; ``read``: the topology that lacks it. ``done``: steps that are done.

    ``at``: read, install, write or agree; or raise, if a partition is ``ahead``, and settle after that. ``topology``:
    what is to be stored, or was.
    """

    known: Topology | None = None
    at: str = "read"
    read: Topology | None = None
    topology: Topology | None = None
    ahead: int = 0
    done: int = 0
    over: bool = False
    """Whether what was forgotten has been written."""


class Reasserter:
    """Looks at the partitions of the active version, as often as it likes."""

    def __init__(self, machine: Machine) -> None:
        self.name = "X"
        self.machine = machine
        self.rules = machine.rules

    def start(self) -> ReasserterState:
        return ReasserterState()

    def moves(self, local: ReasserterState, store: Store) -> Iterable[Move]:
        if local.known is None:
            for known in self.remembered(store):
                yield Move(local._replace(known=known), Call("read_topology"))
        elif local.at == "read":
            yield Move(local, Call("read_topology"))
        elif local.at in ("write", "raise"):
            yield Move(local, Call("write_topology", topology=local.topology, read=local.read))
        else:
            for call in open_calls(self._phases(local), local.done):
                yield Move(local, call)

    def remembered(self, store: Store) -> list[Topology]:
        stored = store.topology
        partitions = (self.machine.at(store, ref) for ref in stored.refs(stored.active)) if stored else ()
        found = {each.successor for each in partitions if each and each.successor}
        return [known for known in sorted(found) if stored and known.highest > stored.highest]

    @staticmethod
    def _phases(local: ReasserterState) -> Phases:
        topology, known, read = local.topology, local.known, local.read
        assert topology is not None
        assert known is not None
        assert read is not None
        if local.at == "install":
            newer = known if known.epoch > read.epoch else read
            refs = (ref for v in topology.versions if read.version(v.number) is None for ref in topology.refs(v.number))
            return (tuple(Call("install", ref, newer, len(topology.refs(ref.version))) for ref in refs),)
        return settle_calls(topology) if local.at == "settle" else (*settle_calls(topology), mark_calls(topology))

    def reply(self, local: ReasserterState, call: Call, reply: Reply) -> ReasserterState:
        if call.method == "read_topology":
            assert isinstance(reply, Topology)
            assert local.known is not None
            if local.known.highest <= reply.highest:
                return ReasserterState()
            at = "install" if self.rules.reassert_installs else "write"
            return ReasserterState(local.known, at, reply, reply.recalling(local.known))
        if call.method == "write_topology":
            if reply:
                over = local.over or local.at == "write"
                return local._replace(at="agree" if local.at == "write" else "settle", done=0, ahead=0, over=over)
            return ReasserterState() if local.over else ReasserterState(local.known)
        if isinstance(reply, Agreed):
            local = local._replace(ahead=max(local.ahead, reply.ahead))
        done = with_done(self._phases(local), local.done, call)
        if open_calls(self._phases(local), done):
            return local._replace(done=done)
        return self._ended(local._replace(done=0))

    @staticmethod
    def _ended(local: ReasserterState) -> ReasserterState:
        """Return where to go on after a phase."""
        read, topology = local.read, local.topology
        assert read is not None
        assert topology is not None
        if local.ahead:
            read = read if local.at == "install" else topology
            return local._replace(at="raise", read=read, topology=read.surpassing(local.ahead, None))
        if local.at == "install":
            return local._replace(at="write")
        return ReasserterState() if local.over else ReasserterState(local.known)

    def unknown(self, local: ReasserterState, call: Call) -> ReasserterState | None:
        return None

    def crash(self, local: ReasserterState) -> ReasserterState | None:
        return ReasserterState() if local.known else None
