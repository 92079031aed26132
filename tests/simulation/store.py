"""The model of a store: what each step of the Store protocol does to the stored state, as a function of values.

The methods carry the names of `headrace.stores.base.Store`. Each takes the stored state and the call, and returns the
state afterwards and the reply; each is atomic.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tests.simulation.moving import Outcome, job_order
from tests.simulation.removing import RemovingSteps
from tests.simulation.rules import Rules
from tests.simulation.values import (
    Agreed,
    Call,
    Counts,
    Enqueue,
    Job,
    Leased,
    Moved,
    Partition,
    Ref,
    Store,
    Token,
    Topology,
    ahead,
    counted,
    epoch_of,
)


class Machine(RemovingSteps):
    """Applies calls to a store with the partitions ``refs`` and the enqueue calls ``enqueues``, under ``rules``.

    ``sleeps``: partitions fall asleep and wake; else they do not even begin so. ``forgets``: a failover may forget the
    last write of the topology.
    """

    def __init__(
        self,
        refs: Sequence[Ref],
        enqueues: Sequence[Enqueue],
        rules: Rules,
        *,
        sleeps: bool = False,
        forgets: bool = False,
    ) -> None:
        ids = tuple(enqueue.id for enqueue in enqueues)
        super().__init__(refs, ids, rules if sleeps else rules._replace(created_asleep=False))
        self.sleeps = sleeps
        self.forgets = forgets
        self.steps: dict[str, Callable[[Store, Call], Outcome]] = {
            "read_topology": self.read_topology,
            "write_topology": self.write_topology,
            "install": self.install,
            "settle": self.settle,
            "mark": self.mark,
            "counts": self.counts,
            "close_partition": self.close_partition,
            "remove": self.remove,
            "discard": self.discard,
            "read_grave": self.read_grave,
            "delete_partition": self.delete_partition,
            "bury_queue": self.bury_queue,
            "set_aside": self.set_aside,
            "adopt": self.adopt,
            "retarget": self.retarget,
            "let_go": self.let_go,
            "forget_arrived": self.forget_arrived,
            "arrivals": self.arrivals,
            "still_aside": self.still_aside,
            "dead_letters": self.dead_letters,
            "adopt_dead": self.adopt_dead,
            "remove_dead": self.remove_dead,
            "enqueue": self.enqueue,
            "probe": self.probe,
            "claim": self.claim,
            "resume": self.resume,
            "ack": self.ack,
            "fail": self.fail,
            "withdraw": self.withdraw,
            "purge": self.purge,
            "sleep": self.sleep,
            "wake": self.wake,
            "read_wakes": self.read_wakes,
            "scale_to_zero": self.scale_to_zero,
            "scale_up": self.scale_up,
            "sweep": self.sweep,
        }

    def apply(self, store: Store, call: Call) -> Outcome:
        return self.steps[call.method](store, call)

    def known(self, store: Store, ref: Ref | None, incarnation: int) -> Partition | None:
        """Return the partition, unless an earlier incarnation of the queue has left it."""
        partition = self.at(store, ref)
        if partition and partition.incarnation < incarnation and self.rules.replaces_earlier:
            return None
        return partition

    # ---- topology -------------------------------------------------------------------------------------------------

    def read_topology(self, store: Store, call: Call) -> Outcome:
        return store, store.topology

    def write_topology(self, store: Store, call: Call) -> Outcome:
        stored = store.topology or store.grave
        if stored == call.topology and self.rules.compare_content:
            return store, True
        same = stored == call.read if self.rules.compare_content else epoch_of(stored) == epoch_of(call.read)
        if not same and self.rules.compare_and_set:
            return store, False
        before = store.topology if self.forgets else None
        return store._replace(topology=call.topology, grave=None, before=before), True

    def install(self, store: Store, call: Call) -> Outcome:
        topology = _topology(call)
        partition = self.known(store, call.ref, topology.incarnation)
        if partition is None:
            return self._create(store, call, topology, call.number)
        newer = self._ahead(partition, topology)
        if partition.incarnation > topology.incarnation or not self.rules.install_reasserts:
            return store, Agreed(partition.state)
        if not newer and partition.epoch < topology.epoch:
            return self._adjust(store, call, partition, topology, call.number)
        return store, Agreed(partition.state, newer)

    def settle(self, store: Store, call: Call) -> Outcome:
        topology = _topology(call)
        partition = self.known(store, call.ref, topology.incarnation)
        assert call.ref is not None
        version = topology.version(call.ref.version)
        assert version is not None
        if partition is None:
            if version.number != topology.active or not self.rules.settle_creates:
                return store, Agreed("absent")
            return self._create(store, call, topology, version.partitions)
        if partition.incarnation > topology.incarnation:
            return store, Agreed(partition.state)
        if newer := self._ahead(partition, topology):
            return store, Agreed(partition.state, newer)
        partitions = version.partitions if self.rules.settle_overwrites else partition.partitions
        return self._adjust(store, call, partition, topology, partitions)

    def _create(self, store: Store, call: Call, topology: Topology, partitions: int) -> Outcome:
        created = Partition(
            "active",
            topology.epoch,
            partitions,
            topology.settings,
            topology if self.forgets else None,
            asleep=self.rules.created_asleep,
            incarnation=topology.incarnation,
        )
        return self.put(store, call.ref, created), Agreed("absent")

    def _adjust(self, store: Store, call: Call, partition: Partition, topology: Topology, partitions: int) -> Outcome:
        """Let a partition that takes settings go by those of a topology."""
        if partition.state == "active":
            partition = partition._replace(partitions=partitions)
        if partition.state in ("active", "draining"):
            of = topology if self.forgets else None
            partition = partition._replace(epoch=topology.epoch, settings=topology.settings, of=of)
        return self.put(store, call.ref, partition), Agreed(partition.state)

    def _ahead(self, partition: Partition, topology: Topology) -> int:
        return ahead(partition, topology, stamps=self.rules.stamps)

    def mark(self, store: Store, call: Call) -> Outcome:
        topology = _topology(call)
        partition = self.known(store, call.ref, topology.incarnation)
        if partition is None:
            if not self.rules.mark_creates:
                return store, "absent"
            partition = Partition("draining", successor=topology, incarnation=topology.incarnation)
        elif partition.incarnation > topology.incarnation and self.rules.mark_spares_later:
            return store, partition.state
        elif partition.state == "active":
            epoch = partition.epoch if self.rules.mark_keeps_epoch else max(partition.epoch, topology.epoch)
            partition = partition._replace(state="draining", epoch=epoch, successor=topology)
        return self.put(store, call.ref, partition), partition.state

    def counts(self, store: Store, call: Call) -> Outcome:
        partition = self.at(store, call.ref)
        if partition is None:
            return store, Counts("absent", 0, False)
        return store, Counts(partition.state, len(partition.dead), False, partition.epoch, partition.of)

    def close_partition(self, store: Store, call: Call) -> Outcome:
        """Whether a client may still resend is filled in by the world, which knows the producers."""
        partition = self.at(store, call.ref)
        if partition is None:
            return store, Counts("absent", 0, False)
        busy = bool(
            partition.jobs if self.rules.close_needs_empty else [job for job in partition.jobs if not job.token]
        )
        if self.rules.close_counts_moving:
            busy = busy or bool(partition.moving or partition.arrived)
        if partition.state == "draining" and not busy:
            partition = partition._replace(state="closed")
        return self.put(store, call.ref, partition), Counts(partition.state, len(partition.dead), False)

    def remove(self, store: Store, call: Call) -> Outcome:
        partition = self.known(store, call.ref, call.incarnation)
        if partition is not None and partition.state in ("active", "draining") and self.rules.remove_needs_closed:
            return store, False
        return self._entomb(store, call)

    def _entomb(self, store: Store, call: Call) -> Outcome:
        partition = self.at(store, call.ref)
        if partition is not None and partition.incarnation > call.incarnation:
            return store, False
        tombstone = Partition("tombstone", incarnation=call.incarnation) if self.rules.tombstones else None
        return self.put(store, call.ref, tombstone), True

    def discard(self, store: Store, call: Call) -> Outcome:
        partition = self.at(store, call.ref)
        if partition is None or partition.state != "active":
            return store, False
        if self.rules.discard_needs_empty:
            known = self.rules.discard_keeps_nonces and (partition.nonces or partition.void)
            if partition.jobs or partition.dead or partition.arrived or known:
                return store, False
        left = None if partition.incarnation == 1 else Partition("tombstone", incarnation=partition.incarnation - 1)
        return self.put(store, call.ref, left), True

    # ---- deleting the queue -----------------------------------------------------------------------------------------

    def read_grave(self, store: Store, call: Call) -> Outcome:
        return store, store.grave

    def delete_partition(self, store: Store, call: Call) -> Outcome:
        """Dead letters are not modelled here: no scenario has both."""
        partition = self.at(store, call.ref)
        after, entombed = self._entomb(store, call)
        if not entombed:
            return store, False
        dropped = store.history.dropped
        for job in partition.jobs if partition else ():
            dropped = counted(dropped, job.uid)
        return after._replace(history=store.history._replace(dropped=dropped)), True

    def bury_queue(self, store: Store, call: Call) -> Outcome:
        topology = _topology(call)
        if store.topology != topology:
            return store, False
        return store._replace(topology=None, grave=topology.grave if self.rules.graves else None), True

    # ---- producing ------------------------------------------------------------------------------------------------

    def enqueue(self, store: Store, call: Call) -> Outcome:
        partition = self.at(store, call.ref)
        if partition is None or (partition.state != "active" and partition.incarnation < call.incarnation):
            return store, Moved("absent")
        if partition.state == "tombstone":
            return store, Moved("tombstone")
        if partition.state != "active" and self.rules.enqueue_checks_state:
            return store, Moved(partition.state, partition.successor)
        if partition.partitions != call.number and self.rules.enqueue_checks_count:
            return store, Moved("resized")
        if partition.incarnation != call.incarnation and self.rules.enqueue_checks_incarnation:
            return store, Moved("resized")
        assert call.nonce is not None
        if call.nonce in partition.nonces:
            return store, "woke" if self.sleeps and self.rules.repeat_wakes else "accepted"
        if self.rules.remember_nonces:
            partition = partition._replace(nonces=tuple(sorted((*partition.nonces, call.nonce))))
        if self._lives(partition, self.ids[call.uid]):
            return self.put(store, call.ref, partition), "existing"
        partition = partition._replace(jobs=tuple(sorted((*partition.jobs, Job(call.uid)), key=job_order)))
        history = store.history._replace(accepted=counted(store.history.accepted, call.uid))
        woke = partition.asleep and self.rules.enqueue_wakes
        store = self.put(store._replace(history=history), call.ref, partition._replace(asleep=False))
        return store, "woke" if woke else "accepted"

    def probe(self, store: Store, call: Call) -> Outcome:
        if self.rules.probe_marks:
            store, _ = self.mark(store, call)
        partition = self.at(store, call.ref)
        if partition is None:
            return store, False
        applied = call.nonce in partition.nonces
        if applied and self.sleeps and self.rules.repeat_wakes:
            return store, "woke"
        return store, applied or self._lives(partition, self.ids[call.uid])

    # ---- sleeping -------------------------------------------------------------------------------------------------

    def sleep(self, store: Store, call: Call) -> Outcome:
        partition = self.at(store, call.ref)
        if partition is None or partition.state not in ("active", "draining"):
            return store, True
        if (partition.jobs or partition.moving or partition.arrived) and self.rules.sleep_needs_empty:
            return store, False
        return self.put(store, call.ref, partition._replace(asleep=True)), True

    def wake(self, store: Store, call: Call) -> Outcome:
        return store._replace(wakes=True), True

    def read_wakes(self, store: Store, call: Call) -> Outcome:
        return store._replace(wakes=False), store.wakes

    def scale_to_zero(self, store: Store, call: Call) -> Outcome:
        return store._replace(workers=False), True

    def scale_up(self, store: Store, call: Call) -> Outcome:
        return store._replace(workers=True), True

    def sweep(self, store: Store, call: Call) -> Outcome:
        return store, True

    # ---- working --------------------------------------------------------------------------------------------------

    def claim(self, store: Store, call: Call) -> Outcome:
        """Lease every ready job; whether the worker's epoch counts is a rule that only a mutant has."""
        partition = self.at(store, call.ref)
        if partition is None or partition.state not in ("active", "draining"):
            return store, Leased((), gone=True)
        if not self.rules.claim_ignores_epoch and call.number != partition.epoch:
            return store, Leased(())
        assert call.token is not None
        store, _ = self.ack(store, call)
        partition = self.at(store, call.ref)
        assert partition is not None
        if self.rules.claim_recovers and any(job.expired for job in partition.jobs):
            recovered = tuple((job.uid, job.token) for job in partition.jobs if job.token and job.expired)
            history = store.history
            store = store._replace(history=history._replace(recovered=tuple(sorted((*history.recovered, *recovered)))))
            partition = partition._replace(jobs=tuple(Job(job.uid) if job.expired else job for job in partition.jobs))
        leased: tuple[int, ...] = ()
        if call.token not in partition.void:
            leased = tuple(job.uid for job in partition.jobs if job.token is None)
            jobs = tuple(Job(job.uid, call.token) if job.token is None else job for job in partition.jobs)
            partition = partition._replace(jobs=jobs)
        return self.put(store, call.ref, partition), Leased(leased)

    def resume(self, store: Store, call: Call) -> Outcome:
        partition = self.at(store, call.ref)
        if partition is None or partition.state not in ("active", "draining"):
            return store, Leased((), gone=True)
        assert call.token is not None
        leased = tuple(job.uid for job in partition.jobs if job.token == call.token)
        jobs = tuple(Job(job.uid, job.token) if job.token == call.token else job for job in partition.jobs)
        partition = partition._replace(jobs=jobs)
        if self.rules.resume_voids and not leased:
            partition = partition._replace(void=tuple(sorted({*partition.void, call.token})))
        return self.put(store, call.ref, partition), Leased(leased)

    def ack(self, store: Store, call: Call) -> Outcome:
        return self._end(store, call, buried=False)

    def fail(self, store: Store, call: Call) -> Outcome:
        """Only the last run of a job is modelled: it becomes a dead letter."""
        return self._end(store, call, buried=True)

    def _end(self, store: Store, call: Call, *, buried: bool) -> Outcome:
        partition = self.at(store, call.ref)
        if partition is None:
            return store, tuple(range(len(call.settled)))
        refused, ended, history = [], set(), store.history
        for number, (uid, token) in enumerate(call.settled):
            if any(job.uid == uid and self._holds(job, token) for job in partition.jobs):
                ended.add(uid)
                if buried:
                    history = history._replace(died=counted(history.died, uid))
                else:
                    history = history._replace(finished=counted(history.finished, uid))
            else:
                refused.append(number)
        if ended:
            jobs = tuple(job for job in partition.jobs if job.uid not in ended)
            dead = tuple(sorted((*partition.dead, *ended))) if buried else partition.dead
            store = self.put(store._replace(history=history), call.ref, partition._replace(jobs=jobs, dead=dead))
        return store, tuple(refused)

    def _holds(self, job: Job, token: Token) -> bool:
        return job.token == token if self.rules.lease_tokens else job.token is not None


def _topology(call: Call) -> Topology:
    assert call.topology is not None
    return call.topology
