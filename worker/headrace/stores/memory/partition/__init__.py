"""One partition in memory: what it holds, a file per part, and the steps on it, a file per concern."""

from headrace.stores.memory.partition.partition import Partition

__all__ = ["Partition"]
