"""The producer's role: enqueue calls one after the other, as `headrace.producer` makes them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tests.simulation.actors import Move
from tests.simulation.rules import Rules
from tests.simulation.values import Call, Enqueue, Moved, Ref, Reply, Store, Topology, route


class ProducerState(NamedTuple):
    """``cache``: the topology it believes in, None before it reads. ``done``: calls that are over.

    ``asked``: older versions probed so far. ``sent``: the partition of a step of unknown outcome. ``refused``: the
    partition that was absent or resized, to be settled once the topology was read again. ``unsure``: calls that ended
    as OutcomeUnknown.
    """

    cache: Topology | None = None
    done: int = 0
    asked: int = 0
    sent: Ref | None = None
    refused: Ref | None = None
    settling: bool = False
    crashed: bool = False
    unsure: tuple[int, ...] = ()


class Producer:
    """Makes those of ``enqueues`` that name it."""

    def __init__(self, number: int, enqueues: Sequence[Enqueue], rules: Rules) -> None:
        self.name = f"P{number}"
        self.rules = rules
        self.calls = tuple((uid, enqueue) for uid, enqueue in enumerate(enqueues) if enqueue.producer == number)

    def start(self) -> ProducerState:
        return ProducerState()

    def moves(self, local: ProducerState, store: Store) -> Iterable[Move]:
        if local.done == len(self.calls):
            return
        topology = local.cache
        if topology is None or (local.refused and not local.settling):
            if store.topology is not None:
                yield Move(local, Call("read_topology"))
            return
        uid, enqueue = self.calls[local.done]
        if local.settling:
            yield Move(local, Call("settle", local.refused, topology))
        elif local.asked < len(self._to_probe(enqueue, topology)):
            version = topology.older[local.asked]
            yield Move(local, Call("probe", route(enqueue.id, version), topology, uid=uid))
        else:
            version = next(v for v in topology.versions if v.number == topology.active)
            nonce = (uid if self.rules.nonce_per_step or enqueue.call < 0 else -enqueue.call - 1, topology.active)
            ref = route(enqueue.id, version)
            yield Move(local, Call("enqueue", ref, number=version.partitions, uid=uid, nonce=nonce))

    def _to_probe(self, enqueue: Enqueue, topology: Topology) -> Sequence[object]:
        return topology.older if enqueue.given and self.rules.probe_caller_ids else ()

    def reply(self, local: ProducerState, call: Call, reply: Reply) -> ProducerState:
        if call.method == "read_topology":
            assert isinstance(reply, Topology)
            if local.refused and reply.active == local.refused.version:
                return local._replace(cache=reply, settling=True)
            if local.refused and local.sent and self.rules.unsure_is_told:
                return self._unsure(local)
            return local._replace(cache=reply, refused=None, sent=None)
        if call.method == "settle":
            return local._replace(settling=False, refused=None)
        if call.method == "probe":
            return self._over(local) if reply else local._replace(asked=local.asked + 1)
        if not isinstance(reply, Moved):
            return self._over(local)
        if reply.state in ("absent", "resized"):
            return local._replace(refused=call.ref, asked=0)
        if reply.state == "tombstone" and local.sent and self.rules.unsure_is_told:
            return self._unsure(local)
        assert local.cache is not None
        newer = reply.successor if reply.successor and reply.successor.epoch > local.cache.epoch else None
        return local._replace(cache=newer, asked=0, sent=None)

    def _unsure(self, local: ProducerState) -> ProducerState:
        return self._over(local)._replace(unsure=(*local.unsure, self.calls[local.done][0]))

    def _over(self, local: ProducerState) -> ProducerState:
        return ProducerState(local.cache, local.done + 1, unsure=local.unsure)

    def unknown(self, local: ProducerState, call: Call) -> ProducerState | None:
        if call.method != "enqueue":
            return None
        return local._replace(sent=call.ref)

    def crash(self, local: ProducerState) -> ProducerState | None:
        return None if local.done == len(self.calls) else ProducerState(done=len(self.calls), crashed=True)
