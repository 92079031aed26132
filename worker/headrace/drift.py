"""Whether the partitions of a queue are in the states that its topology says."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.server_facts import Code, Finding
from headrace.stores.base import PartitionState, Store
from headrace.topology import PartitionRef, Topology, VersionState

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


async def queue_findings(store: Store, queue: str) -> list[Finding]:
    """Compare a queue's topology with its partitions; a queue that does not exist is a finding, too."""
    topology = await store.read_topology(queue)
    if topology is None:
        remedy = "apply its Queue object, or promote its first version"
        return [Finding(Code.UNKNOWN_QUEUE, "warning", f"queue {queue}", "it does not exist in this store", remedy)]
    refs = [ref for number in topology.versions for ref in topology.refs(number)]
    counts = await store.counts(refs)
    return drifted(topology, {ref: each.state for ref, each in zip(refs, counts, strict=True)})
