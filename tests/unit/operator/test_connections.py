"""From a Queue to its store: one pool per URL, one try at a time, no working connection given up for a bad one."""

from __future__ import annotations

import asyncio
import base64
from typing import Any, cast

import pytest

from headrace.errors import AccessDenied, InvalidInput, StoreFull, StoreUnavailable
from headrace.stores.base import Store
from headrace_operator.kubernetes.client import Kube, core
from headrace_operator.observed import ConnectionProblem
from headrace_operator.planning import plan
from headrace_operator.reasons import Finding, Reason
from headrace_operator.redis.connection import Connected, Connections, is_of_connection, problem
from headrace_operator.status import build_status
from tests.unit.operator.api_in_memory import ApiInMemory
from tests.unit.operator.scene import backend, known, observed, queue, queue_version, topology

PATH = f"{core('secrets', 'ns')}/headrace-redis"


class Server:
    """Servers by URL: what `check` says, and what is open."""

    def __init__(self) -> None:
        self.errors: dict[str, Exception] = {}
        self.open: list[str] = []
        self.checks: list[str] = []

    def store(self, url: str) -> Store:
        self.open.append(url)
        return cast(Store, FakeStore(self, url))


class FakeStore:
    def __init__(self, server: Server, url: str) -> None:
        self._server, self.url = server, url

    async def check(self) -> None:
        self._server.checks.append(self.url)
        await asyncio.sleep(0)
        if error := self._server.errors.get(self.url):
            raise error

    async def close(self) -> None:
        self._server.open.remove(self.url)


class Scene:
    def __init__(self) -> None:
        self.api, self.server, self.now = ApiInMemory(), Server(), 1000.0
        self.connections = Connections(cast(Kube, self.api), clock=lambda: self.now, open_url=self.server.store)

    def secret(self, url: str | None) -> None:
        self.now += 1000
        self.api.objects.pop(PATH, None)
        if url is not None:
            data = {"url": base64.b64encode(url.encode()).decode()}
            self.api.objects[PATH] = {"metadata": {"name": "headrace-redis"}, "data": data}

    async def connect(self, uid: str = "u1", **spec: Any) -> Connected | ConnectionProblem:
        given = queue(**spec).spec
        assert given is not None
        return await self.connections.connect("ns", uid, given)

    async def works(self, uid: str = "u1", **spec: Any) -> str:
        found = await self.connect(uid, **spec)
        assert isinstance(found, Connected)
        assert found.instead_of is None
        return cast(FakeStore, found.store).url


@pytest.fixture
def scene() -> Scene:
    return Scene()


async def test_queues_with_one_url_share_a_pool_that_the_last_one_closes(scene: Scene) -> None:
    scene.secret("redis://a")
    for uid in ("u1", "u2", "u3"):
        assert await scene.works(uid) == "redis://a"
    assert (scene.server.open, scene.server.checks) == (["redis://a"], ["redis://a"])
    for uid in ("u1", "u2"):
        await scene.connections.release(uid)
    assert scene.server.open == ["redis://a"]
    await scene.connections.release("u3")
    assert scene.server.open == []


async def test_O10_O39_a_changed_secret_is_used_although_the_old_one_still_works(scene: Scene) -> None:
    scene.secret("redis://a")
    assert await scene.works() == "redis://a"
    scene.secret("redis://b")
    assert await scene.works() == "redis://b"
    assert scene.server.open == ["redis://b"]
    # Another source and back: nothing of before is remembered.
    assert await scene.works(connection={"url": "redis://c"}) == "redis://c"
    scene.secret("redis://d")
    assert await scene.works() == "redis://d"
    assert scene.server.open == ["redis://d"]


async def test_what_a_queue_works_with_is_known_without_its_spec_until_something_may_have_changed(scene: Scene) -> None:
    assert scene.connections.again("u1") is None
    scene.secret("redis://a")
    first, second = await scene.connect("u1"), await scene.connect("u2")
    assert scene.connections.again("u1") == first
    # The Secret is another one, which has been noticed for the sake of another Queue.
    scene.secret("redis://b")
    assert scene.connections.again("u1") is None, "it has to be read"
    assert await scene.works("u2") == "redis://b"
    assert scene.connections.again("u1") is None
    assert scene.connections.again("u2") != second
    moved = await scene.connect("u1")
    assert scene.connections.again("u1") == moved
    # The server does not answer, or the next URL is not right.
    assert isinstance(moved, Connected)
    scene.connections.failed(moved.store, problem(StoreUnavailable("gone")))
    assert scene.connections.again("u1") is None
    assert await scene.connect("u3", connection={"url": "redis://c"}) == scene.connections.again("u3")
    await scene.connections.release("u3")
    assert scene.connections.again("u3") is None


async def test_queues_that_live_at_the_default_url_do_not_ask_for_their_secret_all_the_time() -> None:
    reads: list[str] = []

    class Api(ApiInMemory):
        async def find(self, path: str) -> Any:
            reads.append(path)
            return await super().find(path)

    server, now = Server(), 1000.0
    connections = Connections(cast(Kube, Api()), default_url="redis://all", clock=lambda: now, open_url=server.store)
    given = queue(connection=None).spec
    assert given is not None
    for _ in range(10):
        found = await connections.connect("ns", "u1", given)
        assert found == connections.again("u1")
        now += 4.0
    assert reads == [PATH]
    now += 60.0
    assert connections.again("u1") is None


async def test_a_connection_that_works_is_kept_while_the_next_one_does_not(scene: Scene) -> None:
    scene.secret("redis://a")
    await scene.works()
    scene.server.errors["redis://wrong"] = AccessDenied("redis wrong refused the credentials")
    bad = (("redis://wrong", Reason.ACCESS_DENIED), (None, Reason.SECRET_MISSING), ("x", Reason.INVALID_URL))
    for url, reason in bad:
        scene.secret(url)
        found = await scene.connect()
        assert isinstance(found, Connected)
        assert cast(FakeStore, found.store).url == "redis://a"
        assert found.instead_of is not None
        assert found.instead_of.finding.reason is reason
        assert found.instead_of.stalled
    assert isinstance(found, Connected)
    # When the old one ends as well, what is wrong with the new one is all there is to say.
    scene.connections.failed(found.store, problem(StoreUnavailable("gone")))
    lost = await scene.connect()
    assert isinstance(lost, ConnectionProblem)
    assert lost.finding.reason is Reason.INVALID_URL
    scene.secret("redis://b")
    assert await scene.works() == "redis://b"
    assert scene.server.open == ["redis://b"]


async def test_O26_a_server_that_is_gone_is_tried_by_one_queue_at_a_time(scene: Scene) -> None:
    scene.secret("redis://a")
    scene.server.errors["redis://a"] = StoreUnavailable("no answer")
    first = await scene.connect("u0")
    assert isinstance(first, ConnectionProblem)
    for _ in range(3):
        found = await asyncio.gather(*(scene.connect(f"u{number}") for number in range(50)))
        assert all(each == first for each in found)
    assert scene.server.checks == ["redis://a"]
    assert scene.server.open == ["redis://a"]
    scene.now += 2
    found = await asyncio.gather(*(scene.connect(f"u{number}") for number in range(50)))
    assert scene.server.checks == ["redis://a"] * 2
    del scene.server.errors["redis://a"]
    scene.now += 30
    assert await scene.works("u0") == "redis://a"
    assert [await scene.works(f"u{number}") for number in range(50)] == ["redis://a"] * 50
    assert len(scene.server.checks) == 3
    assert scene.server.open == ["redis://a"]


def test_an_error_of_a_call_is_no_error_of_the_connection() -> None:
    assert not is_of_connection(InvalidInput("partitions", "is 0", "give more"))
    for error, reason in (
        (StoreUnavailable("x"), Reason.UNREACHABLE),
        (StoreFull("x"), Reason.STORE_FULL),
        (AccessDenied("x"), Reason.ACCESS_DENIED),
    ):
        assert is_of_connection(error)
        assert problem(error).finding.reason is reason


def test_what_an_earlier_connection_stands_in_for_is_told_and_the_queue_is_looked_after() -> None:
    missing = ConnectionProblem(Finding(Reason.SECRET_MISSING, "Secret ns/redis does not exist"), stalled=True)
    there = backend(topology({1: (4, "active")}), instead_of=missing)
    seen = observed(queue(2, 8, status=known()), there, queue_version(1))
    planned = plan(seen)
    assert len(planned.steps) == 1
    status = build_status(seen, planned)
    for kind, expected in (("ConnectionReady", "False"), ("Ready", "False"), ("Stalled", "True")):
        condition = status.condition(kind)
        assert condition is not None
        assert (condition.status, condition.reason) == (expected, "SecretMissing")
    assert status.depth is not None
