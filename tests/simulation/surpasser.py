"""Whoever finds that a partition goes by settings that the topology has forgotten: `headrace.agreement.surpass_epoch`.

The leader, which tells every partition what is stored, and remembers nothing; and a worker, which looks at one and
remembers the topology that it read before.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from tests.simulation.actors import Move
from tests.simulation.rules import Rules
from tests.simulation.sequences import Phases, open_calls, settle_calls, with_done
from tests.simulation.values import Agreed, Call, Counts, Reply, Store, Topology, ahead


class SurpasserState(NamedTuple):
    """``known``: what it remembers. ``topology``: as it was read just now, or written; ``newest``: the epoch of a
    partition that is ahead of it.

    ``target``: what is to be stored; ``done``: calls that are done.
    """

    known: Topology | None = None
    topology: Topology | None = None
    newest: int = 0
    target: Topology | None = None
    written: bool = False
    done: int = 0


class Surpasser:
    """Looks whenever it likes, also where nothing was forgotten. ``remembers``: it is a worker."""

    def __init__(self, name: str, rules: Rules, *, remembers: bool) -> None:
        self.name = name
        self.rules = rules
        self.remembers = remembers

    def start(self) -> SurpasserState:
        return SurpasserState()

    def moves(self, local: SurpasserState, store: Store) -> Iterable[Move]:
        topology = local.topology
        if topology is None:
            yield Move(local, Call("read_topology"))
        elif local.target is not None:
            yield Move(local, Call("write_topology", topology=local.target, read=topology))
        else:
            for call in open_calls(self._looks(local), local.done):
                yield Move(local, call)

    def _looks(self, local: SurpasserState) -> Phases:
        topology = local.topology
        assert topology is not None
        if self.remembers and not local.written:
            return (tuple(Call("counts", ref) for v in topology.versions for ref in topology.refs(v.number)),)
        return settle_calls(topology)

    def reply(self, local: SurpasserState, call: Call, reply: Reply) -> SurpasserState:
        if call.method == "read_topology":
            assert isinstance(reply, Topology)
            return SurpasserState(local.known) if reply.deleting else local._replace(topology=reply)
        topology = local.topology
        assert topology is not None
        if call.method == "write_topology":
            raised = local._replace(topology=local.target, newest=0, target=None, written=True, done=0)
            return raised if reply else self._rest(topology)
        if isinstance(reply, Counts):  # a worker looks at one
            return self._looked(local._replace(newest=ahead(reply, topology, stamps=self.rules.stamps)), topology)
        assert isinstance(reply, Agreed)
        done = with_done(self._looks(local), local.done, call)
        local = local._replace(newest=max(local.newest, reply.ahead), done=done)
        return local if open_calls(self._looks(local), done) else self._looked(local, topology)

    def _looked(self, local: SurpasserState, topology: Topology) -> SurpasserState:
        if not local.newest:
            return self._rest(topology)
        target = topology.surpassing(local.newest, local.known, later=self.rules.known_is_later)
        return local._replace(target=target, done=0)

    def _rest(self, topology: Topology) -> SurpasserState:
        return SurpasserState(topology if self.remembers else None)

    def unknown(self, local: SurpasserState, call: Call) -> SurpasserState | None:
        return None

    def crash(self, local: SurpasserState) -> SurpasserState | None:
        return SurpasserState() if local.topology else None
