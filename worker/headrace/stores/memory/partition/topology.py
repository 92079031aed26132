"""How one partition in memory follows the topology."""

from __future__ import annotations

from headrace.settings import PartitionLimits
from headrace.stores.memory.partition.contents import Contents
from headrace.topology import Topology


class TopologyRules(Contents):
    """Steps on the partition as a whole."""

    def agree(self, topology: Topology, partitions: int, limits: PartitionLimits, *, settled: bool) -> int:
        """Follow a topology that is newer than what it knows (``settled``: or the same); its epoch if it is ahead."""
        if self.state not in ("active", "draining"):
            return 0
        if topology.is_behind(self.epoch, self.of):
            return self.epoch
        if self.epoch == topology.epoch and not settled:
            return 0
        if self.state == "active":
            self.partitions = partitions
        self.epoch, self.of = topology.epoch, topology.stamp
        self._limiter.limits = limits
        # Jobs that the former settings held back are not hinted by anybody else.
        if not limits.hold and self.ready:
            self._news.became_ready()
        return 0

    def mark(self, successor: Topology, now: int) -> None:
        """Stop taking jobs, if it takes any."""
        if self.state == "active":
            self.state = "draining"
            self.successor, self._marked_at = successor, now

    def close(self) -> None:
        """Close it for ever, if it drains and holds no live job."""
        if self.state == "draining" and not self._jobs and not self._adopted:
            self.state = "closed"

    def unused(self, now: int) -> bool:
        """Whether it holds neither live jobs nor dead letters, nor the nonce of a call that may be sent again."""
        return not (self._jobs or self._adopted or self.dead or self._nonces.known(now))
