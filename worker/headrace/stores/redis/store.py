"""RedisStore: the Store protocol on Redis, one script per step. See `headrace.stores.protocols` for what each means."""

from __future__ import annotations

from headrace.stores.redis.auditing import RedisAuditing
from headrace.stores.redis.dead_letters import RedisDeadLetters
from headrace.stores.redis.deletion import RedisDeletion
from headrace.stores.redis.finished import RedisFinished
from headrace.stores.redis.inquiry import RedisInquiry
from headrace.stores.redis.moving import RedisMoving
from headrace.stores.redis.parking import RedisParking
from headrace.stores.redis.producing import RedisProducing
from headrace.stores.redis.registry import RedisRegistry
from headrace.stores.redis.replication import RedisReplication
from headrace.stores.redis.schedules import RedisSchedules
from headrace.stores.redis.server import RedisServer
from headrace.stores.redis.sleeping import RedisSleeping
from headrace.stores.redis.statistics import RedisStatistics
from headrace.stores.redis.topology import RedisTopology
from headrace.stores.redis.waking import RedisWaking
from headrace.stores.redis.withdrawing import RedisWithdrawing
from headrace.stores.redis.working import RedisWorking


class RedisStore(
    RedisTopology,
    RedisDeletion,
    RedisAuditing,
    RedisProducing,
    RedisWorking,
    RedisParking,
    RedisMoving,
    RedisDeadLetters,
    RedisFinished,
    RedisInquiry,
    RedisWithdrawing,
    RedisStatistics,
    RedisWaking,
    RedisRegistry,
    RedisSchedules,
    RedisSleeping,
    RedisReplication,
    RedisServer,
):
    """A store on Redis or Valkey: one server, the primary that Sentinels name, or a Cluster, as the URL says.

    One event loop; use `clone` for another.
    """

    def __repr__(self) -> str:
        return f"RedisStore({self._client.server!r}, prefix={self._prefix!r})"

    def clone(self) -> RedisStore:
        """Return a store on the same data with connections of its own, for use in another event loop."""
        return RedisStore(self._url, prefix=self._prefix)
