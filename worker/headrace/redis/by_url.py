"""One client for whatever a URL names."""

from __future__ import annotations

from headrace.redis.client import RedisClient
from headrace.redis.cluster import ClusterClient
from headrace.redis.urls import CLUSTER_SCHEMES, split


def open_client(url: str, *, call_timeout: float = 2.0, connect_timeout: float = 2.0) -> RedisClient | ClusterClient:
    """Return the client for one server, for the primary that Sentinels name, or for a Cluster.

    Raises InvalidInput; the URL, which may hold a password, is never part of the message.
    """
    kind = ClusterClient if split(url).scheme in CLUSTER_SCHEMES else RedisClient
    return kind(url, call_timeout=call_timeout, connect_timeout=connect_timeout)
