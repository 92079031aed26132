"""Whoever undoes an unpromoted version."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from tests.simulation.actors import Move
from tests.simulation.values import Call, Ref, Reply, Store, Topology


class UndoerState(NamedTuple):
    at: str = "read"
    step: int = 0


class Undoer:
    """Removes what was installed of a version that nobody has promoted yet, while somebody may promote it."""

    def __init__(self, version: int, partitions: int) -> None:
        self.name = "U"
        self.refs = tuple(Ref(version, partition) for partition in range(partitions))

    def start(self) -> UndoerState:
        return UndoerState()

    def moves(self, local: UndoerState, store: Store) -> Iterable[Move]:
        if local.at == "read":
            yield Move(local, Call("read_topology"))
        elif local.at == "discard":
            yield Move(local, Call("discard", self.refs[local.step]))

    def reply(self, local: UndoerState, call: Call, reply: Reply) -> UndoerState:
        if local.at == "read":
            assert isinstance(reply, Topology)
            return UndoerState("over" if self.refs[0].version <= reply.highest else "discard")
        return UndoerState("over") if local.step + 1 == len(self.refs) else UndoerState("discard", local.step + 1)

    def unknown(self, local: UndoerState, call: Call) -> UndoerState | None:
        return None

    def crash(self, local: UndoerState) -> UndoerState | None:
        return None
