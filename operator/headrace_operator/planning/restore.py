"""What the topology should be where Redis forgot or contradicts it, and what is therefore written."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.stores.base import Counts
from headrace.topology import Topology, Version, VersionState
from headrace_operator.observed import Case, QueueVersionObject

_HELD = ("active", "draining", "closed")
_PROMOTED = ("Active", "Draining", "Drained")


def restored(case: Case, *, lost: bool) -> Topology | None:
    """Return the topology to write instead of the stored one; None if the stored one is right or none ever was.

    ``lost``: the data is gone, so no older version has anything to drain. The epoch is one above every known one.
    """
    stored, epoch = case.backend.topology, case.queue.status.topology_epoch or 0
    ours = {v.version: v for v in case.seen.versions if v.ownership == "ours"}
    active = _active_version(case, ours, lost=lost)
    if active is None:
        return None

    number, partitions = active
    versions: dict[int, Version] = {}
    for known, version in (stored.versions if stored is not None and not lost else {}).items():
        count = ours[known].spec.partitions if known in ours else version.partitions
        versions[known] = Version(count, version.state)
    if not lost:
        for known, held in ours.items():
            if known < number and known not in versions and _holds_keys(held, case.backend.counts.get(known, {})):
                versions[known] = Version(held.spec.partitions, "draining")
    versions = {n: Version(v.partitions, _older(v.state)) for n, v in versions.items() if n < number}
    versions[number] = Version(partitions, "active")

    if stored is not None and stored.epoch >= epoch and stored.active == number and dict(stored.versions) == versions:
        return None
    return Topology(
        case.queue.queue_name,
        max(epoch, stored.epoch if stored is not None else 0) + 1,
        number,
        max(number, stored.highest if stored is not None else 0),
        versions,
        dict(case.seen.owner),
        case.spec.settings(),
        stored.incarnation if stored is not None else _incarnation(case.backend.counts),
    )


def difference(stored: Topology | None, target: Topology) -> str:
    """Return what a restore changes, for an event."""
    return f"{stored.summary() if stored is not None else 'nothing'}; written: {target.summary()}"


def _active_version(case: Case, ours: Mapping[int, QueueVersionObject], *, lost: bool) -> tuple[int, int] | None:
    """Return number and partitions of the version that must be active; None if nothing was ever promoted."""
    status, stored = case.queue.status, case.backend.topology
    promoted: dict[int, int] = {}
    if status.active_version is not None and status.active_partitions is not None:
        promoted[status.active_version] = status.active_partitions
    promoted |= {number: v.spec.partitions for number, v in ours.items() if v.status.phase == "Active"}
    if stored is not None and stored.active >= max(promoted, default=0):
        # A later promotion than we remember, or the same one; our own object knows the true number of partitions.
        known = ours.get(stored.active)
        return stored.active, known.spec.partitions if known is not None else stored.partitions
    if not promoted:
        return None
    number = max(promoted)
    if not lost and _superseded(case.backend.counts.get(number, {})):
        # Its partitions were marked after a promotion that nobody could note down any more.
        later = [n for n, v in ours.items() if n > number and v.status.phase in ("Pending", "Provisioned")]
        if later:
            number = max(later)
            promoted[number] = ours[number].spec.partitions
    return number, promoted[number]


def _incarnation(counts: Mapping[int, Mapping[int, Counts]]) -> int:
    """Return which queue of its name this is, as its partitions say: those of a later one would refuse everybody."""
    return max((count.incarnation for partitions in counts.values() for count in partitions.values()), default=1)


def _superseded(counts: Mapping[int, Counts]) -> bool:
    return any(count.state in ("draining", "closed", "tombstone") for count in counts.values())


def _holds_keys(version: QueueVersionObject, counts: Mapping[int, Counts]) -> bool:
    return version.status.phase in _PROMOTED and any(count.state in _HELD for count in counts.values())


def _older(state: VersionState) -> VersionState:
    return "draining" if state == "active" else state
