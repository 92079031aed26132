"""The worker's role: claim from any partition it knows of, run, acknowledge - alone or with the next claim."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from tests.simulation.actors import Move
from tests.simulation.rules import Rules
from tests.simulation.values import Call, Leased, Ref, Reply, Store, Token, Topology

Settled = tuple[tuple[int, Token], ...]


class WorkerState(NamedTuple):
    """``held``: jobs that run now. ``acks``: finished jobs without a definitive answer. ``asked``: a claim likewise.

    ``at`` is the partition of all three. ``seq`` numbers claim calls over all lives of the worker, ``born`` is the
    first of this life.
    """

    cache: Topology | None = None
    at: Ref | None = None
    held: Settled = ()
    acks: Settled = ()
    asked: Token | None = None
    seq: int = 1
    born: int = 1


class Worker:
    """A worker process; ``number`` is that of the actor, which tokens carry."""

    def __init__(self, number: int, name: str, rules: Rules, *, fails: bool, fuses: bool) -> None:
        self.number = number
        self.name = name
        self.rules = rules
        self.fails = fails
        self.fuses = fuses

    def start(self) -> WorkerState:
        return WorkerState()

    def moves(self, local: WorkerState, store: Store) -> Iterable[Move]:
        if local.asked:
            yield Move(local, Call("resume", local.at, token=local.asked))
            return
        if local.acks:
            yield Move(local, Call("ack", local.at, settled=local.acks))
            return
        if local.held:
            yield Move(local, Call("ack", local.at, settled=local.held))
            if self.fails:
                yield Move(local, Call("fail", local.at, settled=local.held))
            if self.fuses:
                yield self._claim(local._replace(acks=local.held, held=()), local.at, local.held)
            return
        if store.topology is not None and local.cache != store.topology:
            yield Move(local, Call("read_topology"))
        if local.cache is None:
            return
        for version in local.cache.versions:
            if self.rules.claim_every_version or version.number == local.cache.active:
                for ref in local.cache.refs(version.number):
                    yield self._claim(local._replace(at=ref), ref, ())

    def _claim(self, local: WorkerState, ref: Ref | None, acks: Settled) -> Move:
        assert local.cache is not None
        token = Token(self.number, local.seq)
        call = Call("claim", ref, number=local.cache.epoch, token=token, settled=acks)
        return Move(local, call)

    def reply(self, local: WorkerState, call: Call, reply: Reply) -> WorkerState:
        if call.method == "read_topology":
            assert isinstance(reply, Topology)
            return local._replace(cache=reply)
        if call.method in ("claim", "resume"):
            assert call.token is not None
            assert isinstance(reply, Leased)
            held = tuple((uid, call.token) for uid in reply.uids)
            acks = local.acks if call.method == "resume" else ()
            used = local.seq + 1 if held or call.method == "resume" or call.settled else local.seq
            return self._rested(local._replace(held=held, acks=acks, asked=None, seq=used))
        return self._rested(local._replace(acks=()) if local.acks else local._replace(held=()))

    def _rested(self, local: WorkerState) -> WorkerState:
        return local if local.held or local.acks else local._replace(at=None)

    def unknown(self, local: WorkerState, call: Call) -> WorkerState | None:
        if call.method == "claim":
            return local._replace(asked=call.token)
        if call.method == "ack":
            return local._replace(held=(), acks=call.settled)
        return None

    def crash(self, local: WorkerState) -> WorkerState | None:
        if not (local.held or local.acks or local.asked):
            return None
        seq = local.seq + 1
        return WorkerState(seq=seq, born=seq)
