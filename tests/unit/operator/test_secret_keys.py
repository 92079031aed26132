"""Redis URLs in Secrets: when they are read again, what a correction sets off, and what is said of those not usable."""

from __future__ import annotations

import asyncio
import base64
from typing import cast

import pytest

from headrace.errors import InvalidInput
from headrace_operator.api.names import QueueKey
from headrace_operator.api.queue_spec import REDIS_SCHEMES
from headrace_operator.kubernetes.client import ApiError, ApiUnavailable, Body, Kube, core
from headrace_operator.kubernetes.secret_keys import DOUBTED_SECONDS, KEPT_SECONDS, SecretKey, Secrets
from headrace_operator.observed import ConnectionProblem
from headrace_operator.reasons import Finding, Reason
from headrace_operator.redis.connection import Connections, check_scheme
from tests.unit.operator.api_in_memory import ApiInMemory
from tests.unit.operator.scene import queue

KEY = SecretKey("ns", "headrace-redis", "url")
PATH = f"{core('secrets', 'ns')}/headrace-redis"
MAIL, SMS = QueueKey("ns", "mail"), QueueKey("ns", "sms")


class Api(ApiInMemory):
    """Counts reads, and may refuse them."""

    def __init__(self) -> None:
        super().__init__()
        self.reads = 0
        self.error: Exception | None = None

    async def find(self, path: str) -> Body | None:
        self.reads += 1
        if self.error is not None:
            raise self.error
        return await super().find(path)

    def hold(self, url: str, key: str = "url") -> None:
        data = {key: base64.b64encode(url.encode()).decode()}
        self.objects[PATH] = {"metadata": {"name": "headrace-redis"}, "data": data}


class Time:
    """A clock that the test moves, and that sleeping moves."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.end = float("inf")

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds
        if self.now >= self.end:
            raise asyncio.CancelledError


@pytest.fixture
def api() -> Api:
    return Api()


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def secrets(api: Api, time: Time) -> Secrets:
    return Secrets(cast(Kube, api), time)


async def watch(secrets: Secrets, time: Time, seconds: float) -> list[QueueKey]:
    changed: list[QueueKey] = []
    time.end = time.now + seconds
    with pytest.raises(asyncio.CancelledError):
        await secrets.watch(changed.append, time.sleep)
    return changed


async def test_a_secret_that_works_is_kept_and_one_in_doubt_is_read_again_soon(
    api: Api, time: Time, secrets: Secrets
) -> None:
    api.hold("redis://a")
    assert (await secrets.read(KEY, "u1")).url == "redis://a"
    api.hold("redis://b")
    time.now += KEPT_SECONDS - 1
    assert (await secrets.read(KEY, "u1")).url == "redis://a"
    secrets.doubt("u1", MAIL, KEY)
    assert (await secrets.read(KEY, "u1")).url == "redis://b"
    api.hold("redis://c")
    time.now += DOUBTED_SECONDS
    assert (await secrets.read(KEY, "u1")).url == "redis://c"
    secrets.trust("u1")
    api.hold("redis://d")
    time.now += DOUBTED_SECONDS
    assert (await secrets.read(KEY, "u1")).url == "redis://c"


async def test_many_queues_with_one_missing_secret_read_it_once_in_a_while(
    api: Api, time: Time, secrets: Secrets
) -> None:
    for number in range(100):
        assert (await secrets.read(KEY, "u1")).url is None
        secrets.doubt(f"u{number}", QueueKey("ns", f"q{number}"), KEY)
    assert api.reads == 1
    time.now += DOUBTED_SECONDS
    await secrets.read(KEY, "u1")
    assert api.reads == 2


async def test_every_queue_that_waits_for_a_secret_is_told_once_when_it_changes(
    api: Api, time: Time, secrets: Secrets
) -> None:
    api.hold("redis://wrong")
    await secrets.read(KEY, "u1")
    secrets.doubt("u1", MAIL, KEY)
    secrets.doubt("u2", SMS, KEY)
    assert await watch(secrets, time, 20) == []
    api.hold("redis://right")
    assert await watch(secrets, time, 20) == [MAIL, SMS]
    secrets.trust("u1")
    secrets.trust("u2")
    reads = api.reads
    assert await watch(secrets, time, 20) == []
    assert api.reads == reads


async def test_a_secret_is_kept_only_while_a_queue_uses_it(api: Api, time: Time, secrets: Secrets) -> None:
    api.hold("redis://a")
    for uid in ("u1", "u2"):
        await secrets.read(KEY, uid)
    assert api.reads == 1
    secrets.release("u1")
    await secrets.read(KEY, "u3")
    assert api.reads == 1
    secrets.release("u3")
    # The last one looks elsewhere: what it has read before is forgotten as well.
    await secrets.read(KEY._replace(name="other"), "u2")
    await secrets.read(KEY, "u4")
    assert api.reads == 3
    assert set(secrets._read) == {KEY, KEY._replace(name="other")}


async def test_a_failure_to_read_ends_nothing(api: Api, time: Time, secrets: Secrets) -> None:
    await secrets.read(KEY, "u1")
    secrets.doubt("u1", MAIL, KEY)
    api.error = ApiUnavailable("no answer")
    assert await watch(secrets, time, 20) == []
    api.error = None
    api.hold("redis://right")
    assert await watch(secrets, time, 20) == [MAIL]


async def test_a_thousand_broken_secrets_do_not_flood_the_api_server(api: Api, time: Time, secrets: Secrets) -> None:
    for number in range(1000):
        secrets.doubt(f"u{number}", QueueKey(f"n{number}", "mail"), SecretKey(f"n{number}", "s", "url"))
    await watch(secrets, time, 10)
    assert 100 < api.reads <= 200


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (None, "does not exist; create it with the Redis URL under the key 'url'"),
        ({"other": "cmVkaXM6Ly9h"}, "has no key 'url'; put the Redis URL under it, or name another key"),
        ({"url": ""}, "holds nothing under the key 'url'; put the Redis URL there"),
        ({"url": "IA=="}, "holds nothing under the key 'url'; put the Redis URL there"),
        ({"url": "/w=="}, "holds no text under the key 'url'; put the Redis URL there"),
    ],
)
async def test_what_is_wrong_with_a_secret_is_named(
    api: Api, time: Time, data: dict[str, str] | None, said: str
) -> None:
    if data is not None:
        api.objects[PATH] = {"metadata": {"name": "headrace-redis"}, "data": data}
    spec = queue().spec
    assert spec is not None
    found = await Connections(cast(Kube, api), clock=time).connect("ns", "u1", spec)
    assert isinstance(found, ConnectionProblem)
    assert found.finding == Finding(Reason.SECRET_MISSING, f"Secret ns/headrace-redis {said}")
    assert found.stalled


async def test_a_secret_that_may_not_be_read_is_not_called_missing(api: Api, secrets: Secrets) -> None:
    api.error = ApiError("GET", PATH, 403, "forbidden")
    found = await secrets.read(KEY, "u1")
    assert found.url is None
    assert "may not be read by the operator; add its name to secretNames of the chart" in found.problem
    api.error = ApiError("GET", PATH, 500, "oops")
    with pytest.raises(ApiError):
        await secrets.read(KEY._replace(name="other"), "u1")


@pytest.mark.parametrize("scheme", REDIS_SCHEMES)
def test_every_url_that_pods_can_reach_is_taken(scheme: str) -> None:
    check_scheme(f"{scheme}://redis")


@pytest.mark.parametrize(
    "url", ["memory://", "unix:///run/redis", "mongodb://a", "REDIS://a", "pass:1", "pass", "://x"]
)
def test_a_url_that_leads_nowhere_is_refused_and_only_its_scheme_is_shown(url: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        check_scheme(url)
    assert "use redis://, rediss://" in str(refused.value)
    assert "memory://" not in str(refused.value)
    assert "pass" not in str(refused.value)


def test_the_schemes_are_those_of_the_library_that_leave_a_pod() -> None:
    from headrace.stores import REDIS_SCHEMES as LIBRARY

    assert set(REDIS_SCHEMES) == set(LIBRARY) - {"unix"}
