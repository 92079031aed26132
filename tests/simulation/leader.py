"""The leader's role: it moves the waiting jobs of older versions to the active one, as `headrace.migration` does."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import NamedTuple

from tests.simulation.actors import Move
from tests.simulation.rules import Rules
from tests.simulation.sequences import Phases, open_calls, with_done
from tests.simulation.values import Arrivals, Aside, Call, Ref, Reply, Store, Topology, route


class LeaderState(NamedTuple):
    """``term``: 0 before it leads, -1 once it was fenced off.

    ``task``: move (the jobs of ``ref``) or tidy (the marks of arrival at ``ref``). ``at``: part of the round, ``done``:
    its calls that are done. ``left``: what is set aside and was not offered to its target yet, ``refused``: what a
    target refused, ``adopted``: what is there.
    """

    term: int = 0
    task: str = ""
    ref: Ref | None = None
    at: str = "read"
    topology: Topology | None = None
    done: int = 0
    left: tuple[tuple[int, int], ...] = ()
    refused: tuple[tuple[int, int], ...] = ()
    adopted: tuple[tuple[int, Ref], ...] = ()


@cache
def mark_calls(topology: Topology) -> Phases:
    return (tuple(Call("mark", ref, topology) for version in topology.older for ref in topology.refs(version.number)),)


class Leader:
    """Leads from some time on, under ``term``, until it finds that a newer one has been where it works."""

    def __init__(self, term: int, ids: tuple[str, ...], refs: tuple[Ref, ...], rules: Rules) -> None:
        self.name = f"L{term}"
        self.term = term
        self.ids = ids
        self.refs = refs
        self.rules = rules

    def start(self) -> LeaderState:
        return LeaderState()

    def moves(self, local: LeaderState, store: Store) -> Iterable[Move]:
        if local.term < 0 or store.topology is None:
            return
        if not local.task:
            yield from self._tasks(store, store.topology)
        elif local.task == "tidy":
            yield Move(local, self._tidy_call(local))
        else:
            assert local.topology is not None
            for call in self._calls(local, local.topology):
                yield Move(local, call)

    def _tasks(self, store: Store, topology: Topology) -> Iterable[Move]:
        led = LeaderState(self.term)
        partitions = dict(zip(self.refs, store.partitions, strict=True))
        listed = [ref for version in topology.versions for ref in topology.refs(version.number)]
        for ref in listed:
            partition = partitions[ref]
            if partition is None:
                continue
            if ref.version != topology.active and (partition.moving or any(not j.token for j in partition.jobs)):
                yield Move(led._replace(task="move", ref=ref), Call("read_topology"))
            if partition.arrived:
                yield Move(led._replace(task="tidy", ref=ref), Call("arrivals", ref))

    def _calls(self, local: LeaderState, topology: Topology) -> list[Call]:
        term, ref = local.term, local.ref
        match local.at:
            case "mark":
                return open_calls(mark_calls(topology), local.done)
            case "set_aside":
                return [Call("set_aside", ref, number=topology.active, term=term)]
            case "adopt":
                target, uids = self._next_group(local, topology)
                version = topology.version(target.version)
                assert version is not None
                return [Call("adopt", target, number=version.partitions, uids=uids, source=ref, term=term)]
            case "retarget":
                uids = tuple(uid for uid, to in local.refused if to < topology.active)
                return [Call("retarget", ref, number=topology.active, uids=uids, term=term)]
            case "let_go":
                return [Call("let_go", ref, uids=tuple(uid for uid, _ in local.adopted), term=term)]
            case _:
                assert local.at == "forget_arrived"
                target = min(at for _, at in local.adopted)
                uids = tuple(uid for uid, at in local.adopted if at == target)
                return [Call("forget_arrived", target, uids=uids, source=ref, term=term)]

    def _target(self, uid: int, to: int, topology: Topology) -> Ref | None:
        """Return where a job set aside belongs; None if the version is gone, which it could be only without the job."""
        version = topology.version(to if self.rules.target_is_recorded else topology.active)
        return route(self.ids[uid], version) if version else None

    def _next_group(self, local: LeaderState, topology: Topology) -> tuple[Ref, tuple[int, ...]]:
        target = min(ref for each in local.left if (ref := self._target(*each, topology)))
        return target, tuple(uid for uid, to in local.left if self._target(uid, to, topology) == target)

    def reply(self, local: LeaderState, call: Call, reply: Reply) -> LeaderState:
        if reply == "fenced":
            return LeaderState(-1)
        match call.method:
            case "read_topology":
                assert isinstance(reply, Topology)
                read = local._replace(topology=reply)
                marks = self.rules.move_after_marks and reply.older
                return read._replace(at="mark") if marks else read._replace(at="set_aside")
            case "mark":
                assert local.topology is not None
                phases = mark_calls(local.topology)
                done = with_done(phases, local.done, call)
                return local._replace(done=done) if open_calls(phases, done) else local._replace(at="set_aside", done=0)
            case "set_aside":
                assert isinstance(reply, Aside)
                return self._offered(local._replace(left=reply.jobs))
            case "adopt":
                assert isinstance(reply, tuple)
                assert call.ref is not None
                adopted = tuple((uid, call.ref) for uid in call.uids if uid in reply)
                refused = tuple(each for each in local.left if each[0] in call.uids and each[0] not in reply)
                left = tuple(each for each in local.left if each[0] not in call.uids)
                return self._offered(
                    local._replace(left=left, refused=local.refused + refused, adopted=local.adopted + adopted)
                )
            case "retarget":
                return self._settled(local._replace(refused=()))
            case "let_go":
                return local._replace(at="forget_arrived")
            case "forget_arrived" if local.task == "move":
                adopted = tuple(each for each in local.adopted if each[1] != call.ref)
                return local._replace(adopted=adopted) if adopted else LeaderState(local.term)
        return self._tidied(local, call, reply)

    def _offered(self, local: LeaderState) -> LeaderState:
        """Go on with the next group; jobs whose version is gone count as refused."""
        topology = local.topology
        assert topology is not None
        lost = tuple(each for each in local.left if self._target(*each, topology) is None)
        left = tuple(each for each in local.left if each not in lost)
        local = local._replace(left=left, refused=local.refused + lost)
        if left:
            return local._replace(at="adopt")
        if any(to < topology.active for _, to in local.refused):
            return local._replace(at="retarget")
        return self._settled(local)

    def _settled(self, local: LeaderState) -> LeaderState:
        return local._replace(at="let_go", refused=()) if local.adopted else LeaderState(local.term)

    def _tidy_call(self, local: LeaderState) -> Call:
        """Marks of arrival whose source has let go are forgotten; source after source."""
        source = local.adopted[0][1]
        uids = tuple(uid for uid, at in local.adopted if at == source)
        if local.at == "still_aside":
            return Call("still_aside", source, uids=uids)
        return Call("forget_arrived", local.ref, uids=uids, source=source, term=local.term)

    def _tidied(self, local: LeaderState, call: Call, reply: Reply) -> LeaderState:
        if isinstance(reply, Arrivals):
            arrived = tuple(sorted(reply.jobs, key=lambda each: (each[1], each[0])))
            return local._replace(at="still_aside", adopted=arrived) if arrived else LeaderState(local.term)
        source = local.adopted[0][1]
        if call.method == "still_aside":
            assert isinstance(reply, tuple)
            gone = tuple(each for each in local.adopted if each[1] != source or each[0] not in reply)
            if any(each[1] == source for each in gone):
                return local._replace(at="forget_arrived", adopted=gone)
        others = tuple(each for each in local.adopted if each[1] != source)
        return local._replace(at="still_aside", adopted=others) if others else LeaderState(local.term)

    def unknown(self, local: LeaderState, call: Call) -> LeaderState | None:
        return None

    def crash(self, local: LeaderState) -> LeaderState | None:
        return LeaderState(local.term) if local.task else None
