"""The place beside a queue's own keys in Redis, for those who keep more there than the store does."""

from __future__ import annotations

from dataclasses import dataclass, field

from headrace.redis.by_url import open_client
from headrace.redis.client import RedisClient
from headrace.redis.cluster import ClusterClient
from headrace.stores.redis.kinds import kind_of


@dataclass(frozen=True, slots=True)
class BesideQueue:
    """Where fence and lock of a queue's leader lie: under the hash tag of the queue's own keys, in the same Redis.

    ``server``: which one, as it may be shown. ``url``: may hold a password. ``client``: the store's own, for its event
    loop; not to be closed. ``topology``: the key that is there as long as the queue is.
    """

    tag: str
    server: str
    topology: bytes
    url: str = field(repr=False)
    client: RedisClient | ClusterClient = field(repr=False, compare=False)

    def connect(self, call_timeout: float) -> RedisClient | ClusterClient:
        """Return a client with connections of its own, none of them made yet. ``call_timeout``: seconds."""
        client = open_client(self.url, call_timeout=call_timeout, connect_timeout=call_timeout)
        client.kind_of = kind_of
        return client
