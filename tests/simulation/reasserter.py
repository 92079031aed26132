"""Whoever finds that a partition remembers what the topology has forgotten: `headrace.lifecycle.reassert`.

It stands for all that compare them: workers every few seconds, producers that are refused, the next promotion.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from tests.simulation.actors import Move
from tests.simulation.sequences import finish_calls, open_calls, settle_calls, with_done
from tests.simulation.store import Machine
from tests.simulation.values import Call, Reply, Store, Topology


class ReasserterState(NamedTuple):
    """``known``: what a partition remembers. ``target``: what is to be stored, ``written`` or not; ``done``: steps."""

    known: Topology | None = None
    target: Topology | None = None
    expected: int = 0
    written: bool = False
    done: int = 0


class Reasserter:
    """Looks at the partitions of the active version, as often as it likes."""

    def __init__(self, machine: Machine) -> None:
        self.name = "X"
        self.machine = machine

    def start(self) -> ReasserterState:
        return ReasserterState()

    def moves(self, local: ReasserterState, store: Store) -> Iterable[Move]:
        if local.known is None:
            for known in self.remembered(store):
                yield Move(local._replace(known=known), Call("read_topology"))
        elif local.target is None:
            yield Move(local, Call("read_topology"))
        elif not local.written:
            yield Move(local, Call("write_topology", topology=local.target, number=local.expected))
        else:
            for call in open_calls(self._phases(local.target), local.done):
                yield Move(local, call)

    def remembered(self, store: Store) -> list[Topology]:
        stored = store.topology
        partitions = (self.machine.at(store, ref) for ref in stored.refs(stored.active)) if stored else ()
        found = {each.successor for each in partitions if each and each.successor}
        return [known for known in sorted(found) if stored and known.highest > stored.highest]

    @staticmethod
    def _phases(target: Topology) -> tuple[tuple[Call, ...], ...]:
        return (*settle_calls(target), *finish_calls(target))

    def reply(self, local: ReasserterState, call: Call, reply: Reply) -> ReasserterState:
        if call.method == "read_topology":
            assert isinstance(reply, Topology)
            assert local.known is not None
            if local.known.highest <= reply.highest:
                return ReasserterState()
            return local._replace(target=reply.recalling(local.known), expected=reply.epoch)
        assert local.target is not None
        if call.method == "write_topology":
            return local._replace(written=True) if reply else local._replace(target=None)
        done = with_done(self._phases(local.target), local.done, call)
        return local._replace(done=done) if open_calls(self._phases(local.target), done) else ReasserterState()

    def unknown(self, local: ReasserterState, call: Call) -> ReasserterState | None:
        return None

    def crash(self, local: ReasserterState) -> ReasserterState | None:
        return ReasserterState() if local.known else None
