"""How one partition in memory follows the topology."""

from __future__ import annotations

from headrace.settings import PartitionLimits
from headrace.stores.memory.partition.contents import Contents
from headrace.topology import Topology


class TopologyRules(Contents):
    """Steps on the partition as a whole."""

    def agree(self, epoch: int, partitions: int, limits: PartitionLimits, *, settled: bool) -> None:
        """Follow a topology that is newer than what it knows (``settled``: or as new)."""
        if self.state not in ("active", "draining") or self.epoch > epoch or (self.epoch == epoch and not settled):
            return
        if self.state == "active":
            self.partitions = partitions
        self.epoch = epoch
        self._limiter.limits = limits
        # Jobs that the former settings held back are not hinted by anybody else.
        if not limits.hold and self.ready:
            self._news.became_ready()

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
