"""Whether the partitions of a queue are in the states that its topology says, and their time is the server's."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.server_facts import Code, Finding
from headrace.stores.base import PartitionState, Store
from headrace.topology import PartitionRef, Topology, VersionState

TOLERATED_MS = 5_000
"""By so much the clocks of a Cluster's servers may differ."""
EXPECTED: Mapping[VersionState, tuple[PartitionState, ...]] = {
    "active": ("active",),
    "draining": ("draining", "closed"),
    "removing": ("closed", "tombstone"),
}
"""States of partitions by that of their version. For a moment others are seen while a version is promoted."""


def drifted(topology: Topology, states: Mapping[PartitionRef, PartitionState]) -> list[Finding]:
    """Return a finding per version with partitions in other states than the topology says."""
    found = []
    for number, version in sorted(topology.versions.items()):
        others = [f"{ref.label} {states[ref]}" for ref in topology.refs(number) if _other(version.state, states[ref])]
        if others:
            shown = ", ".join(others[:5]) + (f" and {len(others) - 5} more" if len(others) > 5 else "")
            problem = f"v{number} is {version.state}, but not its partition(s) {shown}"
            remedy = (
                f"if that lasts, `headrace topology promote {topology.queue} --version {topology.active} "
                f"--partitions {topology.partitions}` finishes what was interrupted; an operator does so itself"
            )
            found.append(Finding(Code.TOPOLOGY_DRIFT, "warning", f"queue {topology.queue}", problem, remedy))
    return found


def _other(version: VersionState, partition: PartitionState) -> bool:
    return partition not in EXPECTED[version]


def standing_still(topology: Topology, times: Mapping[PartitionRef, int], now: int) -> list[Finding]:
    """Return a finding if partitions have seen a later time (ms) than ``now``, the server's.

    No partition goes behind a time that it has seen. So after a clock that was ahead, or a failover to a replica whose
    clock is behind, nothing comes due there until the server's has caught up.
    """
    ref, seen = max(times.items(), key=lambda each: each[1])
    if seen - now <= TOLERATED_MS:
        return []
    problem = (
        f"the time of partition {ref.label} is {(seen - now) / 1000:.0f} s ahead of the server's clock: until that has "
        "caught up, delays, retries and the ends of leases wait there"
    )
    remedy = (
        f"if that is long, `headrace topology promote {topology.queue} --version {topology.highest + 1} --partitions "
        f"{topology.partitions}` (or a version bump of its Queue): new partitions begin with the server's time"
    )
    return [Finding(Code.TIME_STANDS_STILL, "warning", f"queue {topology.queue}", problem, remedy)]


async def queue_findings(store: Store, queue: str) -> list[Finding]:
    """Compare a queue's topology and the server's clock with its partitions.

    A queue that does not exist is a finding, too.
    """
    topology = await store.read_topology(queue)
    if topology is None:
        remedy = "apply its Queue object, or promote its first version"
        return [Finding(Code.UNKNOWN_QUEUE, "warning", f"queue {queue}", "it does not exist in this store", remedy)]
    refs = [ref for number in topology.versions for ref in topology.refs(number)]
    counts = dict(zip(refs, await store.counts(refs), strict=True))
    now = (await store.read_schedules(queue)).now  # after the counts, so that time that passes does not count
    states, times = {ref: each.state for ref, each in counts.items()}, {ref: each.now for ref, each in counts.items()}
    return drifted(topology, states) + standing_still(topology, times, now)
