"""Every test here runs on one server and on a Cluster, beside somebody who writes into the keys by hand."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import pytest

from headrace.stores.redis import RedisStore
from tests.integration.damage.hand import Hand
from tests.services.redis import flavours
from tests.services.redis_setups import RedisSetups


@pytest.fixture(params=[flavours()[0], "cluster"])
def setup(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def hand_at(setup: str, redis_setups: RedisSetups) -> Callable[[str], Hand]:
    """Somebody with redis-cli, who may do everything, at the queue of a prefix."""
    return lambda prefix: Hand(redis_setups.node(setup), prefix)


@pytest.fixture
def hand(hand_at: Callable[[str], Hand], prefix: str) -> Hand:
    return hand_at(prefix)


@pytest.fixture
async def store(setup: str, redis_setups: RedisSetups, prefix: str) -> AsyncIterator[RedisStore]:
    opened = RedisStore(redis_setups.url(setup), prefix=prefix)
    yield opened
    await opened.close()
