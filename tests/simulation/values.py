"""The values of the model: topology, partitions, jobs, calls of Store methods and their replies. All immutable.

They are the values of `headrace.topology` and `headrace.stores.base` cut down to what the protocol decides on: no
payloads, no clock. What a clock decides is a step of the environment (a lease ends) or a question about the producers
(may one of them still resend?). Settings are the number of the edit that made them.
"""

from __future__ import annotations

from typing import NamedTuple

from headrace.ids import partition_of


class Ref(NamedTuple):
    """One partition of one version."""

    version: int
    partition: int


class Version(NamedTuple):
    number: int
    partitions: int
    state: str


class Grave(NamedTuple):
    """What is left of the topology of a deleted queue."""

    epoch: int
    incarnation: int


class Topology(NamedTuple):
    epoch: int
    active: int
    highest: int
    versions: tuple[Version, ...]
    settings: int = 0
    incarnation: int = 1
    deleting: bool = False

    def version(self, number: int) -> Version | None:
        return next((version for version in self.versions if version.number == number), None)

    @property
    def partitions(self) -> int:
        return next(version.partitions for version in self.versions if version.number == self.active)

    @property
    def older(self) -> tuple[Version, ...]:
        return tuple(version for version in self.versions if version.number != self.active)

    def refs(self, number: int) -> tuple[Ref, ...]:
        version = self.version(number)
        return tuple(Ref(number, partition) for partition in range(version.partitions)) if version else ()

    @staticmethod
    def created(version: int, partitions: int, grave: Grave | None = None) -> Topology:
        epoch, incarnation = grave or (0, 0)
        versions = (Version(version, partitions, "active"),)
        return Topology(epoch + 1, version, version, versions, incarnation=incarnation + 1)

    def promoted(self, number: int, partitions: int) -> Topology:
        older = tuple(v._replace(state="draining") if v.state == "active" else v for v in self.versions)
        versions = (*older, Version(number, partitions, "active"))
        return self._replace(epoch=self.epoch + 1, active=number, highest=number, versions=versions)

    def removing(self, number: int) -> Topology:
        versions = tuple(v._replace(state="removing") if v.number == number else v for v in self.versions)
        return self._replace(epoch=self.epoch + 1, versions=versions)

    def dropped(self, number: int) -> Topology:
        return self._replace(epoch=self.epoch + 1, versions=tuple(v for v in self.versions if v.number != number))

    def configured(self, settings: int) -> Topology:
        return self._replace(epoch=self.epoch + 1, settings=settings)

    def surpassing(self, epoch: int, known: Topology | None, *, later: bool = True) -> Topology:
        """Return this topology above an ``epoch`` that partitions go by; ``later``: as `Rules.known_is_later`."""
        forgotten = known is not None and (not later or self.epoch < known.epoch <= epoch)
        return self._replace(epoch=epoch + 1, settings=known.settings if known and forgotten else self.settings)

    def recalling(self, known: Topology) -> Topology:
        """Return this topology with the versions of ``known`` that it has forgotten."""
        kept = tuple(v._replace(state="draining") if v.state == "active" else v for v in self.versions)
        forgotten = tuple(v for v in known.versions if v.number > self.highest)
        newer = known if known.epoch > self.epoch else self
        return newer._replace(
            epoch=max(self.epoch + 1, known.epoch),
            active=known.active,
            highest=known.highest,
            versions=(*kept, *forgotten),
        )

    def condemned(self) -> Topology:
        return self._replace(epoch=self.epoch + 1, deleting=True)

    @property
    def grave(self) -> Grave:
        return Grave(self.epoch + 1, self.incarnation)


class Token(NamedTuple):
    """Names one claim call: worker (number of the actor) and its sequence number."""

    worker: int
    seq: int


class Job(NamedTuple):
    """A live job: ready (no token) or leased. ``uid`` numbers the enqueue calls, so two jobs may share an id."""

    uid: int
    token: Token | None = None
    expired: bool = False


Nonce = tuple[int, int]


class Partition(NamedTuple):
    """A partition that exists; a tombstone keeps nothing but its state."""

    state: str
    epoch: int = 0
    partitions: int = 0
    settings: int = 0
    of: Topology | None = None
    """Whose settings these are, where several topologies may have had that epoch: the real thing keeps its stamp."""
    successor: Topology | None = None
    jobs: tuple[Job, ...] = ()
    dead: tuple[int, ...] = ()
    nonces: tuple[Nonce, ...] = ()
    void: tuple[Token, ...] = ()
    asleep: bool = False
    incarnation: int = 1
    moving: tuple[tuple[int, int], ...] = ()
    """(uid, version it moves to) of jobs set aside here."""
    arrived: tuple[tuple[int, Ref], ...] = ()
    """(uid, where from) of jobs that were adopted here and may still be set aside there."""
    term: int = 0
    """The newest leader that has worked here."""


class History(NamedTuple):
    """What happened, for the properties only; no step reads it. One entry per enqueue call in the first three."""

    accepted: tuple[int, ...]
    finished: tuple[int, ...]
    died: tuple[int, ...]
    recovered: tuple[tuple[int, Token], ...] = ()
    dropped: tuple[int, ...] = ()
    """Jobs that were deleted with their queue, or withdrawn, one entry each."""
    purged: tuple[int, ...] = ()
    forgotten: tuple[int, ...] = ()
    """Edits of the settings that a failover has forgotten."""

    def ends(self, uid: int) -> int:
        """Return how often the job of an enqueue call has come to an end."""
        return self.finished[uid] + self.died[uid] + self.dropped[uid] + self.purged[uid]


class Store(NamedTuple):
    """Everything that is stored; ``partitions`` in the order of ``Machine.refs``, None where absent.

    ``workers``: whether any run. ``wakes``: whether the operator has been told that a partition woke.
    """

    topology: Topology | None
    partitions: tuple[Partition | None, ...]
    history: History
    workers: bool = True
    wakes: bool = False
    grave: Grave | None = None
    before: Topology | None = None
    """The topology before the last write of it, where a failover may forget that write."""


class Call(NamedTuple):
    """A call of a Store method; the fields that the method does not have are None or empty."""

    method: str
    ref: Ref | None = None
    topology: Topology | None = None
    number: int = 0
    """Partition count (install, enqueue, adopt) or version (set_aside, retarget)."""
    uid: int = -1
    nonce: Nonce | None = None
    token: Token | None = None
    settled: tuple[tuple[int, Token], ...] = ()
    """(uid, token) of jobs to acknowledge (ack, claim) or to bury (fail)."""
    incarnation: int = 1
    """That the caller of enqueue, remove and delete_partition knows."""
    uids: tuple[int, ...] = ()
    """Jobs, or dead letters, that move."""
    source: Ref | None = None
    """Where the jobs come from (adopt, forget_arrived)."""
    term: int = 0
    """The leader's."""
    read: Topology | Grave | None = None
    """What whoever writes a topology has read: it replaces nothing else."""


class Moved(NamedTuple):
    """Reply of an enqueue that was refused."""

    state: str
    successor: Topology | None = None


class Leased(NamedTuple):
    """Reply of claim and resume: the leased jobs, or that the partition is gone."""

    uids: tuple[int, ...]
    gone: bool = False


class Counts(NamedTuple):
    """Reply of close_partition and counts: state (afterwards), dead letters, whether a client may still resend.

    ``epoch``, ``of``: whose settings the partition goes by, of counts only.
    """

    state: str
    dead: int
    may_retry: bool
    epoch: int = 0
    of: Topology | None = None


class Agreed(NamedTuple):
    """Reply of install and settle: the state before, and the epoch of a partition that is ahead of the topology."""

    state: str
    ahead: int = 0


class Aside(NamedTuple):
    """Reply of set_aside: (uid, version it moves to) of all that is set aside."""

    jobs: tuple[tuple[int, int], ...]


class Arrivals(NamedTuple):
    """Reply of arrivals: (uid, where from)."""

    jobs: tuple[tuple[int, Ref], ...]


class Enqueue(NamedTuple):
    """An enqueue call that a producer will make; ``call`` groups the jobs of one client call."""

    id: str
    producer: int
    given: bool
    call: int = -1


def counted(counts: tuple[int, ...], uid: int) -> tuple[int, ...]:
    """Return the counts with one more of ``uid``."""
    return (*counts[:uid], counts[uid] + 1, *counts[uid + 1 :])


Reply = (
    Topology | Grave | Moved | Counts | Agreed | Leased | Aside | Arrivals | str | bool | int | tuple[int, ...] | None
)


def ahead(partition: Partition | Counts, topology: Topology, *, stamps: bool = True) -> int:
    """Return the epoch of a partition that goes by another topology, and by no older one; 0 if it does not.

    ``stamps``: as `Rules.stamps`.
    """
    if partition.state not in ("active", "draining"):
        return 0
    other = stamps and partition.epoch == topology.epoch and partition.of not in (None, topology)
    return partition.epoch if other or partition.epoch > topology.epoch else 0


def epoch_of(read: Topology | Grave | None) -> int:
    return read.epoch if read else 0


def route(job_id: str, version: Version) -> Ref:
    """Return the partition of ``version`` that the id belongs to, by the rule of the real thing."""
    return Ref(version.number, partition_of(job_id, version.partitions))
