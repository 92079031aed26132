"""The sequence of `headrace.deletion` as a role, and what it is like to meet a queue that is being deleted."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import NamedTuple

from tests.simulation.actors import Move
from tests.simulation.sequences import Phases, open_calls, with_done
from tests.simulation.values import Call, Grave, Reply, Store, Topology


@cache
def delete_calls(topology: Topology) -> Phases:
    refs = (ref for version in topology.versions for ref in topology.refs(version.number))
    return (tuple(Call("delete_partition", ref, incarnation=topology.incarnation) for ref in refs),)


class DeleterState(NamedTuple):
    """``at``: read, grave, write, delete, bury or over; ``done``: the partitions that are deleted."""

    at: str = "read"
    topology: Topology | None = None
    done: int = 0


class Deleter:
    """Deletes the queue once; after a crash it is called again."""

    name = "D"

    def start(self) -> DeleterState:
        return DeleterState()

    def moves(self, local: DeleterState, store: Store) -> Iterable[Move]:
        topology = local.topology
        if local.at == "read":
            yield Move(local, Call("read_topology"))
        elif local.at == "grave":
            yield Move(local, Call("read_grave"))
        elif topology is None:
            return
        elif local.at == "write":
            read = topology._replace(epoch=topology.epoch - 1, deleting=False)
            yield Move(local, Call("write_topology", topology=topology, read=read))
        elif local.at == "delete":
            for call in open_calls(delete_calls(topology), local.done):
                yield Move(local, call)
        elif local.at == "bury":
            yield Move(local, Call("bury_queue", topology=topology))

    def reply(self, local: DeleterState, call: Call, reply: Reply) -> DeleterState:
        topology = local.topology
        match local.at:
            case "read":
                if reply is None:
                    return DeleterState("grave")
                assert isinstance(reply, Topology)
                return DeleterState("delete", reply) if reply.deleting else DeleterState("write", reply.condemned())
            case "write":
                return DeleterState("delete", topology) if reply else DeleterState()
            case "delete":
                assert topology is not None
                done = with_done(delete_calls(topology), local.done, call)
                if open_calls(delete_calls(topology), done):
                    return local._replace(done=done)
                return DeleterState("bury", topology)
            case _:
                assert isinstance(reply, bool | Grave | None)
                return DeleterState("over")

    def unknown(self, local: DeleterState, call: Call) -> DeleterState | None:
        return None

    def crash(self, local: DeleterState) -> DeleterState | None:
        return DeleterState() if local.at in ("delete", "bury") else None
