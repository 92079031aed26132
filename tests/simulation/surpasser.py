"""Whoever finds that a partition goes by settings that the topology has forgotten: `headrace.lifecycle.surpass`.

The leader, which looks at every partition and remembers nothing, and a worker, which looks at one and remembers the
topology that it read before.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from tests.simulation.actors import Move
from tests.simulation.rules import Rules
from tests.simulation.sequences import Phases, count_calls, open_calls, settle_calls, with_done
from tests.simulation.values import Call, Counts, Reply, Store, Topology


class SurpasserState(NamedTuple):
    """``known``: what it remembers. ``topology``: as it was read just now, ``newest``: the newest epoch seen since.

    ``target``: what is to be stored, ``written`` or not; ``done``: calls that are done.
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
        elif local.target is None:
            for call in open_calls(self._looks(topology), local.done):
                yield Move(local, call)
        elif not local.written:
            yield Move(local, Call("write_topology", topology=local.target, number=topology.epoch))
        else:
            for call in open_calls(settle_calls(local.target), local.done):
                yield Move(local, call)

    def _looks(self, topology: Topology) -> Phases:
        if self.remembers:
            return (tuple(Call("counts", ref) for ref in topology.refs(topology.active)),)
        return count_calls(topology)

    def reply(self, local: SurpasserState, call: Call, reply: Reply) -> SurpasserState:
        if call.method == "read_topology":
            assert isinstance(reply, Topology)
            return SurpasserState(local.known) if reply.deleting else local._replace(topology=reply)
        assert local.topology is not None
        if isinstance(reply, Counts):
            return self._counted(local, call, reply, local.topology)
        assert local.target is not None
        if call.method == "write_topology":
            return local._replace(written=True, done=0) if reply else self._rest(local.topology)
        done = with_done(settle_calls(local.target), local.done, call)
        return local._replace(done=done) if open_calls(settle_calls(local.target), done) else self._rest(local.target)

    def _counted(self, local: SurpasserState, call: Call, counts: Counts, topology: Topology) -> SurpasserState:
        if self.remembers:
            newest = counts.epoch if counts.state == "active" else 0
        else:
            newest = max(local.newest, counts.open_epoch)
            done = with_done(self._looks(topology), local.done, call)
            if open_calls(self._looks(topology), done):
                return local._replace(newest=newest, done=done)
        if newest <= topology.epoch:
            return self._rest(topology)
        target = topology.surpassing(newest, local.known, later=self.rules.known_is_later)
        return local._replace(newest=newest, target=target, done=0)

    def _rest(self, topology: Topology) -> SurpasserState:
        return SurpasserState(topology if self.remembers else None)

    def unknown(self, local: SurpasserState, call: Call) -> SurpasserState | None:
        return None

    def crash(self, local: SurpasserState) -> SurpasserState | None:
        return SurpasserState() if local.topology else None
