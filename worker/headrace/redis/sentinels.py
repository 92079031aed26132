"""Sentinels, asked for the primary of a name. The library's class forgets why a Sentinel gave no answer."""

from __future__ import annotations

from typing import Any

from redis.asyncio.sentinel import MasterNotFoundError, Sentinel
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError


class Sentinels(Sentinel):
    """Asks one after the other, beginning with the one that has answered last."""

    async def discover_master(self, service_name: str) -> tuple[str, int]:
        """Return host and port of the primary.

        Raises MasterNotFoundError, caused by the error of a Sentinel if none of them answered.
        """
        problem: Exception | None = None
        answered = False
        for number, sentinel in enumerate(self.sentinels):
            try:
                primaries: Any = await sentinel.sentinel_masters()
            except (RedisConnectionError, RedisTimeoutError) as error:
                problem = error
                continue
            answered = True
            state = primaries.get(service_name)
            if state and self.check_master_state(state, service_name):
                self.sentinels[0], self.sentinels[number] = sentinel, self.sentinels[0]
                return state["ip"], state["port"]
        raise MasterNotFoundError(f"no primary {service_name!r}") from (None if answered else problem)
