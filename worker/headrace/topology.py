"""The topology of one queue: which versions exist, with how many partitions, and which one is active.

A value with pure transitions, each of which raises ``epoch`` by one; storing it is a compare-and-set on what was read::

              promote N+1                  every partition closed
     active ---------------> draining -------------------------> removing -> (gone)

Only `promote` creates a topology, versions only grow, and the stored value always wins over configuration.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from headrace.errors import (
    InvalidInput,
    QueueDeleting,
    TopologyConflict,
    TopologyUnreadable,
    UnknownVersion,
    VersionActive,
    VersionNotHigher,
)
from headrace.settings import PartitionLimits, QueueSettings, partition_limits

FORMAT = 1
MAX_PARTITIONS = 1024
MAX_VERSION = 2**31 - 1
_QUEUE_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?\Z")

VersionState = Literal["active", "draining", "removing"]


class PartitionRef(NamedTuple):
    """Names one partition of one version of one queue."""

    queue: str
    version: int
    partition: int

    @property
    def label(self) -> str:
        """``version:partition``, the form that hints and messages use."""
        return f"{self.version}:{self.partition}"


_LABEL = re.compile(rb"([1-9][0-9]{0,8}):(0|[1-9][0-9]{0,8})")


def labelled(queue: str, label: bytes) -> PartitionRef | None:
    """Return the partition of a queue by its label, ``version:partition``, as hints carry it; None if it is none."""
    found = _LABEL.fullmatch(label)
    return PartitionRef(queue, int(found[1]), int(found[2])) if found else None


@dataclass(frozen=True, slots=True)
class Version:
    """One version of a queue."""

    partitions: int
    state: VersionState


def check_queue_name(queue: str) -> str:
    """Return ``queue`` if it is a valid queue name, else raise InvalidInput."""
    if not isinstance(queue, str) or not is_queue_name(queue):
        raise InvalidInput(
            "queue",
            f"{queue!r} is not a queue name",
            "use 1 to 63 lower-case letters, digits, '-' and '.', beginning and ending with a letter or digit",
        )
    return queue


@lru_cache(maxsize=1024)
def is_queue_name(queue: str) -> bool:
    """Whether a text is a valid queue name."""
    return _QUEUE_NAME.match(queue) is not None


def check_partitions(partitions: int) -> int:
    """Return ``partitions`` if it is 1..1024, else raise InvalidInput."""
    if isinstance(partitions, bool) or not isinstance(partitions, int) or not 1 <= partitions <= MAX_PARTITIONS:
        raise InvalidInput("partitions", f"is {partitions!r}", f"give 1 to {MAX_PARTITIONS}")
    return partitions


def check_version(version: int) -> int:
    """Return ``version`` if it is 1..2147483647, else raise InvalidInput."""
    if isinstance(version, bool) or not isinstance(version, int) or not 1 <= version <= MAX_VERSION:
        raise InvalidInput("version", f"is {version!r}", f"give 1 to {MAX_VERSION}")
    return version


@dataclass(frozen=True, slots=True)
class Grave:
    """What is left of the topology of a deleted queue: its last epoch, and which queue of that name it was.

    A queue that is created under the name again goes on from there, so that whoever still knows the deleted one is told
    apart, and whatever is left of it.
    """

    epoch: int
    incarnation: int
    _text: str = field(default="", init=False, compare=False, repr=False)
    """The stored form if it was read, as in `Topology`: it is compared when the queue is created again."""

    def to_json(self) -> str:
        """Return the stored form (format 1); of a grave that was read, the very text."""
        if self._text:
            return self._text
        values = {"format": FORMAT, "epoch": self.epoch, "incarnation": self.incarnation}
        return json.dumps(values, separators=(",", ":"))

    @staticmethod
    def from_json(queue: str, text: str | bytes) -> Grave:
        """Parse the stored form; raise TopologyUnreadable if it is damaged or of a newer format."""
        try:
            data = _parsed(text)
            grave = Grave(int(data["epoch"]), int(data["incarnation"]))
            object.__setattr__(grave, "_text", text if isinstance(text, str) else text.decode())
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise TopologyUnreadable(queue, str(error)) from error
        return grave


@dataclass(frozen=True, slots=True)
class Topology:
    """Versions of one queue. ``owner`` says which Queue object cares for it (empty without an operator).

    ``incarnation``: 1, and one more for each time that a queue of this name was deleted and created again.
    ``deleting``: it is being deleted, for good; nothing else may change any more.
    """

    queue: str
    epoch: int
    active: int
    highest: int
    versions: Mapping[int, Version]
    owner: Mapping[str, str] = field(default_factory=dict)
    settings: QueueSettings = field(default_factory=QueueSettings)
    incarnation: int = 1
    deleting: bool = False
    _text: str = field(default="", init=False, compare=False, repr=False)
    """The stored form if it was read, since other releases may write another one, or once it was made: it is asked for
    once per partition. No transition keeps it."""

    @property
    def partitions(self) -> int:
        """Partitions of the active version."""
        return self.versions[self.active].partitions

    @property
    def draining(self) -> tuple[int, ...]:
        """Versions that drain, oldest first."""
        return tuple(sorted(number for number, version in self.versions.items() if version.state == "draining"))

    @property
    def older(self) -> tuple[int, ...]:
        """Every version but the active one, oldest first: where a job enqueued earlier may still live."""
        return tuple(sorted(number for number in self.versions if number != self.active))

    def refs(self, version: int) -> tuple[PartitionRef, ...]:
        """Return every partition of ``version``; raise UnknownVersion if it is not listed."""
        if version not in self.versions:
            raise UnknownVersion(self.queue, version, tuple(sorted(self.versions)))
        return tuple(PartitionRef(self.queue, version, number) for number in range(self.versions[version].partitions))

    def limits(self, version: int, partitions: int) -> PartitionLimits:
        """Return what each of the ``partitions`` partitions of a version enforces.

        With drain order strict only the oldest version that may hold jobs is consumed.
        """
        before = (n for n, known in self.versions.items() if n < version and known.state != "removing")
        its_turn = self.settings.drain.order != "strict" or not any(before)
        return partition_limits(self.settings, partitions, its_turn=its_turn)

    def summary(self) -> str:
        """Return one line for messages."""
        versions = ", ".join(f"v{n} {v.state} x{v.partitions}" for n, v in sorted(self.versions.items()))
        deleting = ", being deleted" if self.deleting else ""
        return f"epoch {self.epoch}: {versions} (highest ever v{self.highest}){deleting}"

    # ---- transitions: each returns the next value, epoch + 1 -------------------------------------------------------

    @staticmethod
    def created(
        queue: str,
        version: int,
        partitions: int,
        settings: QueueSettings | None = None,
        owner: Mapping[str, str] | None = None,
        grave: Grave | None = None,
    ) -> Topology:
        """Return the first topology of a queue: at epoch 1, or after the last epoch of a deleted one of that name."""
        epoch, incarnation = (grave.epoch, grave.incarnation) if grave is not None else (0, 0)
        return Topology(
            check_queue_name(queue),
            epoch + 1,
            check_version(version),
            version,
            {version: Version(check_partitions(partitions), "active")},
            dict(owner or {}),
            settings or QueueSettings(),
            incarnation + 1,
        )

    def promoted(self, version: int, partitions: int) -> Topology:
        """Return the topology with ``version`` active and the others draining.

        Raises TopologyConflict if ``version`` is active with another number of partitions, VersionNotHigher if it was
        used before, QueueDeleting. Promoting the active version with its own partitions is not a transition: ask
        `is_promoted`.
        """
        self.check_alive()
        check_version(version)
        check_partitions(partitions)
        if version == self.active:
            raise TopologyConflict(
                self.queue,
                f"version {version} is already active with {self.partitions} partitions, not {partitions}; "
                f"promote version {self.highest + 1} to change the number",
                self,
            )
        if version <= self.highest:
            raise VersionNotHigher(self.queue, version, self.highest)
        versions = {
            number: replace(known, state="draining") if known.state == "active" else known
            for number, known in self.versions.items()
        }
        versions[version] = Version(partitions, "active")
        return replace(self, epoch=self.epoch + 1, active=version, highest=version, versions=versions)

    def is_promoted(self, version: int, partitions: int) -> bool:
        """Whether a request to promote this is already fulfilled."""
        return version == self.active and partitions == self.partitions

    def removing(self, version: int) -> Topology:
        """Return the topology with a drained ``version`` marked for removal of its keys."""
        self._check_completable(version)
        versions = {**self.versions, version: replace(self.versions[version], state="removing")}
        return replace(self, epoch=self.epoch + 1, versions=versions)

    def dropped(self, version: int) -> Topology:
        """Return the topology without ``version``, whose keys have been removed."""
        self._check_completable(version)
        versions = {number: known for number, known in self.versions.items() if number != version}
        return replace(self, epoch=self.epoch + 1, versions=versions)

    def recalling(self, known: Topology, forgotten: Collection[int]) -> Topology:
        """Return the topology with versions that this one has ``forgotten``, as ``known`` has them.

        Where nothing was written since they were forgotten, and nothing completed, that is ``known`` itself again.
        """
        self.check_alive()
        active = known.active if known.active in forgotten and known.active > self.active else self.active
        versions = {**self.versions, **{number: known.versions[number] for number in forgotten}}
        for number, version in versions.items():
            if number == active:
                versions[number] = replace(version, state="active")
            elif version.state == "active":
                versions[number] = replace(version, state="draining")
        newer = known if known.epoch > self.epoch else self
        recalled = replace(
            self,
            epoch=max(self.epoch + 1, known.epoch),
            active=active,
            highest=max(self.highest, known.highest),
            versions=versions,
            owner=newer.owner,
            settings=newer.settings,
        )
        return known if recalled == known else recalled

    def configured(self, settings: QueueSettings, owner: Mapping[str, str] | None = None) -> Topology:
        """Return the topology with other settings and, if given, another owner. Raises QueueDeleting."""
        self.check_alive()
        return replace(
            self,
            epoch=self.epoch + 1,
            settings=settings,
            owner=self.owner if owner is None else dict(owner),
        )

    def surpassing(self, epoch: int, known: Topology | None) -> Topology:
        """Return the topology under an epoch above one that its partitions go by, of which it has forgotten the write.

        ``known``: an earlier value that somebody remembers; its settings and owner count if it is such a write.
        """
        same = known is not None and known.incarnation == self.incarnation
        newest = known if known is not None and same and self.epoch < known.epoch <= epoch else self
        return replace(self, epoch=epoch + 1, settings=newest.settings, owner=newest.owner)

    def is_behind(self, epoch: int, stamp: str) -> bool:
        """Whether a partition goes by another topology than this one, and by no older one.

        ``epoch``, ``stamp``: of the topology whose settings it has. A stamp of another epoch was left there by an older
        release, which knows of none, and says nothing.
        """
        another = epoch == self.epoch and stamp.startswith(f"{epoch}:") and stamp != self.stamp
        return another or epoch > self.epoch

    def condemned(self) -> Topology:
        """Return the topology of a queue that is about to be deleted."""
        return replace(self, epoch=self.epoch + 1, deleting=True)

    def check_alive(self) -> Topology:
        """Return this topology; raise QueueDeleting if its queue is being deleted."""
        if self.deleting:
            raise QueueDeleting(self.queue)
        return self

    def _check_completable(self, version: int) -> None:
        self.check_alive()
        if version not in self.versions:
            raise UnknownVersion(self.queue, version, tuple(sorted(self.versions)))
        if version == self.active:
            raise VersionActive(self.queue, version)

    # ---- stored form ----------------------------------------------------------------------------------------------

    def to_json(self) -> str:
        """Return the stored form (format 1); of a topology that was read, the very text."""
        if not self._text:
            object.__setattr__(self, "_text", self._dumped())
        return self._text

    def _dumped(self) -> str:
        return json.dumps(
            {
                "format": FORMAT,
                "epoch": self.epoch,
                "active": self.active,
                "highest": self.highest,
                "versions": {
                    str(number): {"partitions": version.partitions, "state": version.state}
                    for number, version in sorted(self.versions.items())
                },
                "owner": dict(self.owner),
                "settings": self.settings.model_dump(exclude_none=True),
                **({"incarnation": self.incarnation} if self.incarnation > 1 else {}),
                **({"deleting": True} if self.deleting else {}),
            },
            separators=(",", ":"),
        )

    @property
    def stamp(self) -> str:
        """Epoch and digest of the stored form: after a failover several topologies may have had that epoch."""
        return f"{self.epoch}:{hashlib.blake2b(self.to_json().encode(), digest_size=8).hexdigest()}"

    @property
    def grave(self) -> Grave:
        """What is left of it when the queue has been deleted."""
        return Grave(self.epoch + 1, self.incarnation)

    @staticmethod
    def from_json(queue: str, text: str | bytes) -> Topology:
        """Parse the stored form; raise TopologyUnreadable if it is damaged or of a newer format."""
        try:
            data = _parsed(text)
            versions = {
                int(number): Version(int(value["partitions"]), value["state"])
                for number, value in data["versions"].items()
            }
            topology = Topology(
                queue,
                int(data["epoch"]),
                int(data["active"]),
                int(data["highest"]),
                MappingProxyType(versions),
                data.get("owner", {}),
                # A newer version may have written settings that are unknown here.
                QueueSettings.model_validate(data.get("settings", {}), extra="ignore"),
                int(data.get("incarnation", 1)),
                bool(data.get("deleting", False)),
            )
            if topology.active not in versions:
                raise ValueError(f"active version {topology.active} is not listed")
            object.__setattr__(topology, "_text", text if isinstance(text, str) else text.decode())
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise TopologyUnreadable(queue, str(error)) from error
        return topology


def _parsed(text: str | bytes) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(text)
    if data["format"] != FORMAT:
        raise ValueError(f"format {data['format']} is not {FORMAT}; upgrade Headrace here")
    return data
