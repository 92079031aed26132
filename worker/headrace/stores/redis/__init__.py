"""The Redis backend: one Lua script per transition (``lua/``), Redis >= 6.2 or Valkey."""

from headrace.stores.redis.store import RedisStore

__all__ = ["RedisStore"]
