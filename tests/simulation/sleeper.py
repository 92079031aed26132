"""The operator's role where a queue has workers only while there is work: it puts the queue to sleep and wakes it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from tests.simulation.actors import Move
from tests.simulation.rules import Rules
from tests.simulation.values import Call, Ref, Reply, Store, Topology


class SleeperState(NamedTuple):
    """``at``: watches (workers run), partitions (puts them to sleep one by one), zero (takes the workers away), asleep,
    or raise. ``done``: partitions that sleep."""

    at: str = "watches"
    topology: Topology | None = None
    done: int = 0


class Sleeper:
    """Level-triggered: what it has heard only makes it look, and a look begins with reading the topology."""

    name = "S"

    def __init__(self, rules: Rules) -> None:
        self.rules = rules

    def start(self) -> SleeperState:
        return SleeperState()

    def moves(self, local: SleeperState, store: Store) -> Iterable[Move]:
        match local.at:
            case "watches":
                if store.wakes:
                    yield Move(local, Call("read_wakes"))
                if store.topology is not None:
                    yield Move(local, Call("read_topology"))
            case "partitions":
                yield Move(local, Call("sleep", self._refs(local)[local.done]))
            case "zero":
                yield Move(local, Call("scale_to_zero"))
                if store.wakes and not self.rules.wakes_lead_to_a_look:
                    yield Move(local, Call("read_wakes"))
            case "asleep":
                if store.wakes:
                    yield Move(local, Call("read_wakes"))
                if self.rules.sweep and any(partition and partition.jobs for partition in store.partitions):
                    yield Move(local, Call("sweep"))
            case _:
                yield Move(local, Call("scale_up"))

    def _refs(self, local: SleeperState) -> tuple[Ref, ...]:
        topology = local.topology
        assert topology is not None
        if not self.rules.sleep_every_version:
            return topology.refs(topology.active)
        return tuple(ref for version in topology.versions for ref in topology.refs(version.number))

    def reply(self, local: SleeperState, call: Call, reply: Reply) -> SleeperState:
        match call.method:
            case "read_topology":
                assert isinstance(reply, Topology)
                first = "partitions" if self.rules.sleep_before_zero else "zero"
                return SleeperState(first, reply)
            case "sleep":
                if not reply and self.rules.refusal_aborts:
                    return SleeperState()
                if local.done + 1 < len(self._refs(local)):
                    return local._replace(done=local.done + 1)
                return SleeperState("zero" if self.rules.sleep_before_zero else "asleep")
            case "scale_to_zero":
                return SleeperState("asleep") if self.rules.sleep_before_zero else local._replace(at="partitions")
            case "scale_up":
                return SleeperState()
            case _:
                return SleeperState("raise") if local.at == "asleep" else local

    def unknown(self, local: SleeperState, call: Call) -> SleeperState | None:
        return None

    def crash(self, local: SleeperState) -> SleeperState | None:
        return None
