"""Logins, database numbers, sockets and TLS, for one server, behind Sentinels and in a Cluster."""

from __future__ import annotations

import shutil
import traceback
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from headrace.errors import AccessDenied, HeadraceError, InvalidInput, StoreUnavailable
from headrace.lifecycle import promote
from headrace.producer import Producer
from headrace.redis.client import RedisClient
from headrace.redis.permissions import rule
from headrace.stores import Store, open_store
from tests.cluster.certificates import Authority
from tests.cluster.guard import Guard
from tests.conformance.steps import QUEUE, run_everything
from tests.services.redis import Flavour, RedisServer, flavours
from tests.services.redis_access import Login, Tls
from tests.services.redis_cluster import RedisClusterServers
from tests.services.redis_sentinel import SentinelServers

STRANGE = "p@ss:w/o?r#d%&+ö [1]"
"""A password with everything that a URL must escape."""


@asynccontextmanager
async def opened(url: str, prefix: str = "headrace") -> AsyncIterator[Store]:
    store = open_store(url, prefix)
    try:
        yield store
    finally:
        await store.close()


async def works(url: str) -> None:
    """A job is enqueued and runs, through every kind of connection that the store makes."""
    async with opened(url) as store:
        await store.check()
        topology = await promote(store, QUEUE, 1, 4)
        placed = await Producer(store).enqueue(QUEUE, "send")
        assert await store.wait_hint([QUEUE], 5) is not None
        assert await run_everything(store, topology) == [placed.id]


async def told(url: str, kind: type[HeadraceError] = StoreUnavailable, *secrets: str) -> str:
    """What the store says when it cannot connect; nowhere a secret, not even in what has led to it."""
    async with opened(url) as store:
        for call in (store.check(), store.read_topology(QUEUE), store.wait_hint([QUEUE], 1)):
            with pytest.raises(kind) as caught:
                await call
            shown = "".join(traceback.format_exception(caught.value)) + repr(store)
            assert [secret for secret in secrets if secret in shown] == []
    return str(caught.value)


# ---- logins ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("login", [Login("", STRANGE), Login("us:er@1", STRANGE)], ids=["password", "user"])
async def test_a_login_with_strange_characters_on_one_server(process_guard: Guard, login: Login) -> None:
    with RedisServer(login=login, guard=process_guard) as server:
        await works(server.url)
        for wrong in (Login(login.user, "hunter2"), Login("nobody", "hunter2")):
            url = server.url.replace(login.in_url, wrong.in_url)
            assert "refused the credentials" in await told(url, AccessDenied, "hunter2", "nobody")
        assert "refused the credentials" in await told(f"redis://127.0.0.1:{server.port}", AccessDenied)


async def test_a_login_in_a_cluster(process_guard: Guard) -> None:
    servers = RedisClusterServers("valkey", login=Login("us:er@1", STRANGE), guard=process_guard)
    servers.start()
    try:
        await works(servers.url)
        url = servers.url.replace(Login("us:er@1", STRANGE).in_url, "us%3Aer%401:hunter2@")
        assert "refused the credentials" in await told(url, AccessDenied, "hunter2")
    finally:
        servers.close()


async def test_sentinels_with_a_login_of_their_own(process_guard: Guard) -> None:
    login, own = Login("us:er@1", STRANGE), Login("", "sentinels' " + STRANGE)
    servers = SentinelServers("valkey", login=login, sentinel_login=own, guard=process_guard)
    servers.start()
    try:
        await works(servers.url)
        base, _, options = servers.url.partition("?")
        assert "no Sentinel answers: they refuse the credentials; give theirs" in await told(
            base, StoreUnavailable, "us%3Aer"
        )
        wrong = f"{base}?sentinel_password=hunter2"
        assert "they refuse the credentials" in await told(wrong, StoreUnavailable, "hunter2")
        other = f"{base.replace('/jobs', '/emails')}?{options}"
        assert "no Sentinel knows a primary of that name" in await told(other)
        url = servers.url.replace(login.in_url, "us%3Aer%401:hunter2@")
        assert "refused the credentials" in await told(url, AccessDenied, "hunter2")
    finally:
        servers.close()


# ---- places ---------------------------------------------------------------------------------------------------------


async def test_databases_of_one_server_are_apart(process_guard: Guard) -> None:
    with RedisServer(guard=process_guard) as server:
        base = f"redis://127.0.0.1:{server.port}"
        await works(f"{base}/3")
        with server.client() as client:
            assert client.info("keyspace").keys() == {"db3"}
        await works(f"{base}/0")
        assert "has no database of that number" in await told(f"{base}/99", InvalidInput)


async def test_a_database_behind_sentinels(process_guard: Guard) -> None:
    servers = SentinelServers("valkey", guard=process_guard)
    servers.start()
    try:
        await works(f"{servers.url}/3")
        with servers.primary.client() as client:
            assert client.info("keyspace").keys() == {"db3"}
    finally:
        servers.close()


@pytest.mark.parametrize("login", [None, Login("us:er@1", STRANGE)], ids=["open", "login"])
async def test_a_socket_file(process_guard: Guard, login: Login | None) -> None:
    with RedisServer(login=login, guard=process_guard) as server:
        user = login.in_url if login else ""
        await works(f"unix://{user}{server.socket}?db=2")
        with server.client() as client:
            assert client.info("keyspace").keys() == {"db2"}
    assert "does not answer" in await told(f"unix://{user}{server.socket}", StoreUnavailable, "us%3Aer")


# ---- TLS ------------------------------------------------------------------------------------------------------------

tls_is_there = pytest.mark.skipif(shutil.which("redis-server") is None, reason="Valkey's wheel is built without TLS")


@pytest.fixture
def tls(tmp_path: Path) -> Tls:
    return Tls.made(tmp_path, "127.0.0.1", "localhost")


@pytest.fixture
def other_authority(tmp_path: Path) -> Path:
    path = tmp_path / "other.crt"
    path.write_bytes(Authority("another").certificate)
    return path


@pytest.fixture(params=["server", "cluster", "sentinel"])
def tls_url(request: pytest.FixtureRequest, tls: Tls, process_guard: Guard) -> Iterator[str]:
    """Servers that speak TLS only and ask for a login."""
    login = Login("us:er@1", STRANGE)
    servers: RedisServer | RedisClusterServers | SentinelServers
    if request.param == "server":
        servers = RedisServer("redis", tls=tls, login=login, guard=process_guard)
    elif request.param == "cluster":
        servers = RedisClusterServers("redis", tls=tls, login=login, guard=process_guard)
    else:
        servers = SentinelServers("redis", tls=tls, login=login, guard=process_guard)
    try:
        servers.start()
        yield servers.url
    finally:
        servers.close()


@tls_is_there
async def test_tls_with_an_authority_of_ones_own(tls_url: str, tls: Tls, other_authority: Path) -> None:
    await works(tls_url)
    bare, _, _ = tls_url.partition("?")
    assert "certificate is not trusted" in await told(bare, StoreUnavailable, "us%3Aer")
    assert "add ssl_ca_certs=FILE" in await told(f"{bare}?ssl_ca_certs={other_authority}")
    await works(f"{bare}?ssl_cert_reqs=none")
    assert "needs rediss instead of redis" in await told(bare.replace("rediss", "redis", 1))


@tls_is_there
@pytest.mark.parametrize("form", ["server", "cluster", "sentinel"])
async def test_a_certificate_for_another_host_is_refused(tmp_path: Path, process_guard: Guard, form: str) -> None:
    tls = Tls.made(tmp_path, "redis.example")
    with RedisServer("redis", tls=tls, sentinel=form == "sentinel", guard=process_guard) as server:
        schemes = {"server": "rediss://", "cluster": "rediss+cluster://", "sentinel": "rediss+sentinel://"}
        name = "/jobs" if form == "sentinel" else ""
        url = f"{schemes[form]}127.0.0.1:{server.port}{name}?ssl_ca_certs={tls.authority}"
        assert "certificate is for another host" in await told(url)
        if form == "server":
            await works(f"{url}&ssl_check_hostname=false")


@tls_is_there
@pytest.mark.parametrize("form", ["server", "cluster", "sentinel"])
async def test_servers_that_ask_for_a_certificate_of_ours(tmp_path: Path, process_guard: Guard, form: str) -> None:
    tls = Tls.made(tmp_path, "127.0.0.1", asks_clients=True)
    assert tls.client is not None
    kinds = {"server": RedisServer, "cluster": RedisClusterServers, "sentinel": SentinelServers}
    servers = kinds[form]("redis", tls=tls, guard=process_guard)
    try:
        servers.start()
        refusal = await told(servers.url)
        assert "asks for a certificate of ours" in refusal
        assert "add ssl_certfile=FILE and ssl_keyfile=FILE" in refusal
        await works(f"{servers.url}&ssl_certfile={tls.client[0]}&ssl_keyfile={tls.client[1]}")
    finally:
        servers.close()


async def test_a_user_with_the_printed_rule_works_under_its_prefix_and_reaches_no_other(process_guard: Guard) -> None:
    """Also a prefix that begins like it, and one with signs that mean something in a pattern."""
    with RedisServer(guard=process_guard) as server, server.client() as client:
        for prefix, others in (("jobs", ("jobs-of-others", "job", "jobsx")), ("a*b[1]", ("axb1", "aXXb[1]", "a*b1"))):
            client.execute_command("ACL", "SETUSER", "app", "reset", "on", ">secret", *rule(prefix))
            url = server.url_of(Login("app", "secret"))
            store = open_store(url, prefix)
            topology = await promote(store, QUEUE, 1, 2)
            placed = await Producer(store).enqueue(QUEUE, "send")
            assert await store.wait_hint([QUEUE], 5) is not None
            await store.write_marker("data")
            assert await run_everything(store, topology) == [placed.id]
            await store.close()
            for other in others:
                async with opened(url, other) as stranger:
                    for call in (stranger.read_topology(QUEUE), stranger.queues(), stranger.write_marker("data")):
                        with pytest.raises(AccessDenied):
                            await call


@pytest.mark.parametrize("flavour", flavours())
async def test_a_rule_that_lacks_a_command_of_a_script_is_named(process_guard: Guard, flavour: Flavour) -> None:
    """As after an upgrade. The script has written before it was refused, so the producer does not try again."""
    with RedisServer(flavour, guard=process_guard) as server, server.client() as client:
        client.execute_command("ACL", "SETUSER", "app", "reset", "on", ">secret", *rule("jobs"))
        async with opened(server.url_of(Login("app", "secret")), "jobs") as store:
            await promote(store, QUEUE, 1, 1)
            client.execute_command("ACL", "SETUSER", "app", "-rpush")
            with pytest.raises(AccessDenied, match="`headrace acl`") as caught:
                await Producer(store, retry_for=4.5).enqueue(QUEUE, "send", id="refused")
            assert caught.value.half_way
            assert client.execute_command("HLEN", f"{{jobs:{QUEUE}:1:0}}:jobs") == 1  # it was: only the list lacks it


@pytest.mark.parametrize("flavour", flavours())
async def test_a_key_that_a_script_may_not_reach_is_no_damage(process_guard: Guard, flavour: Flavour) -> None:
    with RedisServer(flavour, guard=process_guard) as server, server.client() as client:
        client.execute_command("ACL", "SETUSER", "app", "reset", "on", ">secret", *rule("jobs"))
        connection = RedisClient(server.url_of(Login("app", "secret")))
        with pytest.raises(AccessDenied, match="`headrace acl`") as caught:
            await connection.command("EVAL", "return redis.call('GET', 'of-others')", 0)
        assert caught.value.half_way
        await connection.close()
