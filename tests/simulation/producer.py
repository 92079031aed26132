"""The producer's role: enqueue calls one after the other, as `headrace.producer` makes them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tests.simulation.actors import Move
from tests.simulation.rules import Rules
from tests.simulation.values import Call, Enqueue, Moved, Nonce, Ref, Reply, Store, Topology, Version, route


class Lost(NamedTuple):
    """A step whose reply did not arrive: where it went, and its nonce."""

    ref: Ref
    nonce: Nonce


class ProducerState(NamedTuple):
    """``cache``: the topology it believes in, None before it reads. ``done``: calls that are over.

    ``asked``: older versions probed so far. ``lost``: a step of unknown outcome; it is resent until it is ``refused``,
    then the older versions are asked. ``slept``: longer than its outcome can be found out. ``telling``: it woke a
    partition and has not said so yet. ``unready``: the partition
    that was absent or resized, to be settled (``settling``) if the topology, read again, still says so. ``unsure``:
    calls that ended as OutcomeUnknown. ``failed``: calls that ended because the queue is deleted.
    """

    cache: Topology | None = None
    done: int = 0
    asked: int = 0
    lost: Lost | None = None
    refused: bool = False
    slept: bool = False
    telling: bool = False
    unready: Ref | None = None
    settling: bool = False
    crashed: bool = False
    unsure: tuple[int, ...] = ()
    failed: tuple[int, ...] = ()


class Producer:
    """Makes those of ``enqueues`` that name it. ``gives_up``: a call ends where there is no queue, else it waits."""

    def __init__(self, number: int, enqueues: Sequence[Enqueue], rules: Rules, *, gives_up: bool = False) -> None:
        self.name = f"P{number}"
        self.rules = rules
        self.gives_up = gives_up
        self.calls = tuple((uid, enqueue) for uid, enqueue in enumerate(enqueues) if enqueue.producer == number)

    def start(self) -> ProducerState:
        return ProducerState()

    def moves(self, local: ProducerState, store: Store) -> Iterable[Move]:
        if local.done == len(self.calls):
            return
        topology = local.cache
        if topology is None or (local.unready and not local.settling):
            if store.topology is not None or self.gives_up:
                yield Move(local, Call("read_topology"))
            return
        uid, enqueue = self.calls[local.done]
        if local.telling:
            yield Move(local, Call("wake"))
            return
        if local.settling:
            yield Move(local, Call("settle", local.unready, topology))
        elif local.asked < len(self._to_probe(local, topology)):
            ref = route(enqueue.id, topology.older[local.asked])
            nonce = local.lost.nonce if local.lost else None
            yield Move(local, Call("probe", ref, topology, uid=uid, nonce=nonce))
        else:
            version = next(v for v in topology.versions if v.number == topology.active)
            nonce = (uid if self.rules.nonce_per_step or enqueue.call < 0 else -enqueue.call - 1, topology.active)
            ref = route(enqueue.id, version)
            sent = Call("enqueue", ref, None, version.partitions, uid, nonce, incarnation=topology.incarnation)
            yield Move(local, sent)

    def _to_probe(self, local: ProducerState, topology: Topology) -> Sequence[Version]:
        if local.lost and not local.refused:
            return ()  # the step is resent first
        given = self.calls[local.done][1].given and self.rules.probe_caller_ids
        return topology.older if given or (local.lost and self.rules.probe_lost) else ()

    def reply(self, local: ProducerState, call: Call, reply: Reply) -> ProducerState:
        if call.method == "read_topology":
            assert reply is None or isinstance(reply, Topology)
            if reply is None or reply.deleting:
                failed = (*local.failed, self.calls[local.done][0])
                return self._over(local)._replace(cache=None, failed=failed)
            assert local.cache or not local.unready
            same = local.cache and local.cache.incarnation == reply.incarnation
            if local.unready and reply.active == local.unready.version and same:
                return local._replace(cache=reply, settling=True)
            return self._regrouped(local._replace(cache=reply, unready=None, asked=0, refused=True))
        if call.method == "settle":
            return local._replace(settling=False, unready=None)
        if reply == "woke":
            return local._replace(telling=True)
        if call.method == "probe":
            return self._over(local) if reply else self._regrouped(local._replace(asked=local.asked + 1))
        if not isinstance(reply, Moved):
            return self._over(local)
        if reply.state in ("absent", "resized"):
            return local._replace(unready=call.ref)
        assert local.cache is not None
        newer = reply.successor if reply.successor and reply.successor.epoch > local.cache.epoch else None
        return self._regrouped(local._replace(cache=newer, asked=0, refused=True))

    def _regrouped(self, local: ProducerState) -> ProducerState:
        """Draw the conclusion once every older version was asked for a lost step: it was never applied."""
        if local.cache is None or local.asked < len(self._to_probe(local, local.cache)):
            return local
        if local.lost and local.slept and self.rules.deadline_ends_it:
            return self._over(local)._replace(unsure=(*local.unsure, self.calls[local.done][0]))
        return local._replace(lost=None, refused=False, slept=False)

    def _over(self, local: ProducerState) -> ProducerState:
        return ProducerState(local.cache, local.done + 1, unsure=local.unsure, failed=local.failed)

    def unknown(self, local: ProducerState, call: Call) -> ProducerState | None:
        if call.method != "enqueue":
            return None
        assert call.ref is not None
        assert call.nonce is not None
        return local._replace(lost=Lost(call.ref, call.nonce), refused=False)

    def crash(self, local: ProducerState) -> ProducerState | None:
        return None if local.done == len(self.calls) else ProducerState(done=len(self.calls), crashed=True)
