"""The in-memory backend, for tests and local use: the same behaviour as the Redis one, in one process."""

from headrace.stores.memory.store import MemoryStore

__all__ = ["MemoryStore"]
