"""The fence's scripts on real servers, and that the model of the simulator does the same."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from importlib.resources import files

import pytest
import redis.asyncio as redis_client
from hypothesis import given, settings
from hypothesis import strategies as st
from redis.crc import key_slot
from redis.exceptions import ResponseError

from headrace.election.backends.redis import RedisLock
from headrace.election.errors import Unavailable
from headrace.election.fence import Accepted, Claim, Held, Stale, Token
from headrace.election.memory_fence import FenceState
from headrace.election.record import Record
from headrace.election.redis_fence import RedisFence, fence_key
from headrace.election.scripts import script
from headrace.redis.by_url import open_client
from headrace.redis.scripts import fragment
from tests.cluster.guard import Guard
from tests.services.redis import RedisServer, RedisServers

TTL = 15.0
C = 2.5
EIGHT_DAYS_MS = 8 * 24 * 3600 * 1000
SCRIPTS = ("claim", "beat", "release", "read", "lock")

# What a leader's script looks like: the fence first, the check before the first write.
LEADER_SCRIPT = f"""
local FENCE, WORK = KEYS[1], KEYS[2]
{fragment("headrace.redis", "fenced")}
local ruling = fenced(FENCE, ARGV[1], ARGV[2], tonumber(ARGV[3]))
if ruling then return redis.error_reply('FENCED ' .. ruling) end
return redis.call('RPUSH', WORK, ARGV[1])
"""


@dataclass
class Fences:
    """Two processes at one fence, and a connection that plays the leader's scripts."""

    tag: str
    a: RedisFence
    b: RedisFence
    connection: redis_client.Redis

    async def work(self, token: Token) -> int:
        keys = (fence_key(self.tag), f"{{{self.tag}}}:work")
        return int(await self.connection.eval(LEADER_SCRIPT, 2, *keys, token.epoch, token.nonce, 15000))

    async def written(self) -> list[bytes | str]:
        return list(await self.connection.lrange(f"{{{self.tag}}}:work", 0, -1))


async def open_fences(server: RedisServer, tag: str) -> AsyncIterator[Fences]:
    fences = Fences(
        tag,
        RedisFence(open_client(server.url, call_timeout=C), tag),
        RedisFence(open_client(server.url, call_timeout=C), tag),
        redis_client.Redis.from_url(server.url),
    )
    yield fences
    await fences.a.close()
    await fences.b.close()
    await fences.connection.aclose()


@pytest.fixture
async def fences(redis_server: RedisServer, prefix: str) -> AsyncIterator[Fences]:
    async for each in open_fences(redis_server, f"{prefix}:queue"):
        yield each


def claim(holder: str, nonce: str, term: int, backend: str = "lease", rank: int = 3) -> Claim:
    return Claim(holder, nonce, backend, rank, term)


async def test_L9_LE31_a_paused_holders_beat_and_writes_are_refused(fences: Fences) -> None:
    first = await fences.a.claim(claim("a", "n1", 1), TTL, C)
    assert first == Accepted(1)
    token = Token(1, "n1")
    assert await fences.a.beat(token, TTL, C)
    assert await fences.work(token) == 1
    assert await fences.b.claim(claim("b", "n2", 2), TTL, C) == Accepted(2)
    assert not await fences.a.beat(token, TTL, C)
    with pytest.raises(ResponseError, match=r"^FENCED 2$"):
        await fences.work(token)
    assert await fences.work(Token(2, "n2")) == 2
    assert await fences.written() == [b"1", b"2"]


async def test_a_repeated_claim_keeps_its_epoch(fences: Fences) -> None:
    for _ in range(3):
        assert await fences.a.claim(claim("a", "n1", 1), TTL, C) == Accepted(1)


async def test_an_older_or_equal_term_is_stale_even_when_nobody_leads(fences: Fences) -> None:
    await fences.a.claim(claim("a", "n1", 9), TTL, C)
    await fences.a.release("n1", C)
    assert await fences.b.claim(claim("b", "n2", 9), TTL, C) == Stale(9)
    assert await fences.b.claim(claim("b", "n2", 3), TTL, C) == Stale(9)
    assert await fences.b.claim(claim("b", "n2", 10), TTL, C) == Accepted(2)


async def test_LE36_two_winners_of_one_term_one_rules_and_one_is_stale(fences: Fences) -> None:
    answers = [await fences.a.claim(claim("a", "n1", 4, "mongo", 2), TTL, C)]
    answers.append(await fences.b.claim(claim("b", "n2", 4, "mongo", 2), TTL, C))
    assert answers == [Accepted(1), Stale(4)]


async def test_terms_of_different_backends_are_not_compared(fences: Fences) -> None:
    await fences.a.claim(claim("a", "n1", 90), TTL, C)
    await fences.a.release("n1", C)
    assert await fences.b.claim(claim("b", "n2", 1, "mongo", 2), TTL, C) == Accepted(2)


async def test_a_lower_rank_waits_and_a_higher_one_does_not(fences: Fences) -> None:
    await fences.a.claim(claim("a", "n1", 1, "mongo", 2), TTL, C)
    held = await fences.b.claim(claim("b", "n2", 1, "redis", 1), TTL, C)
    assert isinstance(held, Held)
    assert held.rank == 2
    assert 10 < held.seconds <= TTL
    assert await fences.b.claim(claim("b", "n3", 1), TTL, C) == Accepted(2)


async def test_one_process_moves_down_and_up_without_waiting(fences: Fences) -> None:
    await fences.a.claim(claim("a", "n1", 1), TTL, C)
    assert await fences.a.claim(claim("a", "n2", 1, "mongo", 2), TTL, C) == Accepted(2)
    assert await fences.a.claim(claim("a", "n3", 2), TTL, C) == Accepted(3)
    assert not await fences.a.beat(Token(2, "n2"), TTL, C)


async def test_the_next_epoch_is_above_one_that_was_seen_elsewhere(fences: Fences) -> None:
    await fences.a.claim(claim("a", "n1", 1), TTL, C)
    seen = dataclasses.replace(claim("a", "n2", 2), above=40)
    assert await fences.a.claim(seen, TTL, C) == Accepted(41)
    assert await fences.a.claim(claim("a", "n3", 3), TTL, C) == Accepted(42)


async def test_a_claim_runs_out_by_the_servers_clock(fences: Fences) -> None:
    await fences.a.claim(claim("a", "n1", 1, "mongo", 2), 0.05, C)
    deadline = asyncio.get_running_loop().time() + 10
    while isinstance(await fences.b.claim(claim("b", "n2", 1, "redis", 1), TTL, C), Held):
        assert asyncio.get_running_loop().time() < deadline
    assert not await fences.a.beat(Token(1, "n1"), TTL, C)


async def test_L3_release_frees_only_the_own_term_and_voids_it(fences: Fences) -> None:
    await fences.a.claim(claim("a", "n1", 1), TTL, C)
    await fences.b.release("n2", C)
    await fences.b.release("", C)
    assert await fences.a.beat(Token(1, "n1"), TTL, C)
    await fences.a.release("n1", C)
    assert not await fences.a.beat(Token(1, "n1"), TTL, C)
    assert not await fences.a.beat(Token(1, ""), TTL, C)
    view = await fences.a.read(C)
    assert (view.epoch, view.holder, view.seconds) == (1, "a", 0)
    assert await fences.b.claim(claim("b", "n3", 1, "redis", 1), TTL, C) == Accepted(2)


async def test_L9_a_restart_without_persistence_fences_the_old_token(process_guard: Guard, prefix: str) -> None:
    with RedisServer(guard=process_guard) as server:
        async for fences in open_fences(server, prefix):
            await fences.a.claim(claim("a", "n1", 1), TTL, C)
            server.kill()
            with pytest.raises(Unavailable):
                await fences.a.beat(Token(1, "n1"), TTL, C)
            server.start()
            assert not await fences.a.beat(Token(1, "n1"), TTL, C)
            # The same epoch is minted again; the nonce tells the two apart.
            assert await fences.b.claim(claim("b", "n2", 1), TTL, C) == Accepted(1)
            with pytest.raises(ResponseError, match=r"^FENCED 1$"):
                await fences.work(Token(1, "n1"))
            assert await fences.work(Token(1, "n2")) == 1


async def test_L1_a_hundred_races_of_connections_have_one_winner_each(redis_server: RedisServer, prefix: str) -> None:
    tag = f"{prefix}:race"
    racers = [RedisFence(open_client(redis_server.url, call_timeout=C), tag) for _ in range(6)]
    for term in range(1, 101):
        claims = [claim(f"p{n}", f"{term}-{n}", term) for n in range(6)]
        answers = await asyncio.gather(*(fence.claim(each, TTL, C) for fence, each in zip(racers, claims, strict=True)))
        assert answers.count(Accepted(term)) == 1
        assert answers.count(Stale(term)) == 5
    for fence in racers:
        await fence.close()


async def test_J21_fence_and_lock_of_something_that_was_deleted_pass(redis_server: RedisServer, prefix: str) -> None:
    """They stay as long as it is there, however long nobody leads; if it is made anew, its leader keeps them."""
    owner = f"{{{prefix}}}:topology"
    fence = RedisFence(open_client(redis_server.url, call_timeout=C), prefix, owner.encode())
    lock = RedisLock(open_client(redis_server.url, call_timeout=C), prefix, owner.encode())
    record = Record("a", 1, 15.0, 1, 1, 0)
    async with redis_client.Redis.from_url(redis_server.url) as connection:

        async def left() -> list[int]:
            return [await connection.pttl(f"{{{prefix}}}:{name}") for name in ("fence", "lock")]

        assert await fence.claim(claim("a", "n1", 1), TTL, C) == Accepted(1)
        version = await lock.create(record, C)
        assert all(0 < ms <= EIGHT_DAYS_MS for ms in await left())
        await connection.set(owner, "there")
        assert await fence.beat(Token(1, "n1"), TTL, C)
        version = await lock.cas(version, record, C)
        assert await left() == [-1, -1]
        await connection.delete(owner)
        assert await fence.claim(claim("a", "n1", 1), TTL, C) == Accepted(1)
        await lock.cas(version, record, C)
        assert all(0 < ms <= EIGHT_DAYS_MS for ms in await left())
    await fence.close()
    await lock.close()


async def test_a_server_that_is_silent_is_unavailable_and_the_outcome_unknown(
    process_guard: Guard, prefix: str
) -> None:
    with RedisServer(guard=process_guard) as server:
        fence = RedisFence(open_client(server.url, call_timeout=0.3), prefix)
        await fence.claim(claim("a", "n1", 1), TTL, 0.3)
        server.pause()
        with pytest.raises(Unavailable) as caught:
            await fence.beat(Token(1, "n1"), TTL, 0.3)
        assert caught.value.ambiguous
        server.resume()
        await fence.close()


async def test_announcements_are_heard_and_outlive_the_server(process_guard: Guard, prefix: str) -> None:
    with RedisServer(guard=process_guard) as server:
        speaker = RedisFence(open_client(server.url, call_timeout=C), prefix)
        listener = RedisFence(open_client(server.url, call_timeout=C), prefix)
        heard: asyncio.Queue[None] = asyncio.Queue()

        async def listen() -> None:
            async for _ in listener.announcements():
                heard.put_nowait(None)

        async def told() -> None:
            # Nobody knows when a subscription is in place.
            while heard.empty():
                with contextlib.suppress(Unavailable):  # a connection of before the restart
                    await speaker.announce(C)
                await asyncio.sleep(0.05)

        task = asyncio.create_task(listen())
        async with asyncio.timeout(60):
            await told()
            server.kill()
            server.start()
            while not heard.empty():
                heard.get_nowait()
            await told()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await speaker.close()
        await listener.close()


CLAIMS = st.builds(
    Claim,
    holder=st.sampled_from("ab"),
    nonce=st.sampled_from(("n1", "n2", "n3", "n4", "n5")),
    backend=st.sampled_from(("lease", "mongo")),
    rank=st.integers(1, 3),
    term=st.integers(1, 4),
    above=st.integers(0, 6),
)
TOKENS = st.builds(Token, st.integers(0, 5), st.sampled_from(("", "n1", "n2", "n3", "n4", "n5")))
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("claim"), CLAIMS, st.sampled_from((0.0, 1e6))),
        st.tuples(st.just("beat"), TOKENS, st.just(1e6)),
        st.tuples(st.just("release"), st.sampled_from(("n1", "n2", "n3")), st.just(0.0)),
    ),
    max_size=14,
)


@settings(max_examples=150)
@given(steps=STEPS)
def test_the_model_of_the_simulator_answers_like_the_scripts(
    redis_servers: RedisServers, steps: list[tuple[str, Claim | Token | str, float]]
) -> None:
    """A time to live is nothing or for ever here, so that no clock decides."""

    async def compare() -> None:
        server = redis_servers.get("valkey")
        connection = redis_client.Redis.from_url(server.url)
        await connection.delete(fence_key("model"))
        fence, model = RedisFence(open_client(server.url, call_timeout=C), "model"), FenceState(lambda: 0)
        for kind, subject, ttl in steps:
            if isinstance(subject, Claim):
                mine, theirs = model.claim(subject, round(ttl * 1000)), await fence.claim(subject, ttl, C)
                if isinstance(mine, Held):
                    assert isinstance(theirs, Held)
                    assert mine.rank == theirs.rank
                else:
                    assert mine == theirs, (kind, subject)
            elif isinstance(subject, Token):
                assert model.beat(subject, round(ttl * 1000)) == await fence.beat(subject, ttl, C), subject
            else:
                model.release(subject)
                await fence.release(subject, C)
            view, other = model.view(), await fence.read(C)
            assert (view.epoch, view.holder, view.backend, view.rank) == (
                other.epoch, other.holder, other.backend, other.rank,
            )  # fmt: skip
        await fence.close()
        await connection.aclose()

    asyncio.run(compare())


@pytest.mark.parametrize("name", SCRIPTS)
def test_every_script_says_what_it_does_and_declares_its_keys(name: str) -> None:
    source = script(name).source
    for word in ("-- KEYS", "-- ARGV", "-- Returns", "-- Cost"):
        assert word in source, f"{name}.lua lacks {word}"
    code = re.sub(r"--[^\n]*", "", source)
    touched = {key for command, key in re.findall(r"redis\.call\('(\w+)'(?:, (\w+))?", code) if command != "TIME"}
    assert touched <= {"FENCE", "LOCK", "OWNER", "key"}
    assert set(re.findall(r"passing\((\w+)\)", code)) <= {"FENCE", "LOCK", "key"}
    declared = re.findall(r"^local (FENCE|LOCK)(, OWNER)? = (.+)$", code, re.MULTILINE)
    assert [(bool(owner), keys) for _, owner, keys in declared] == [
        ("OWNER" in code, "KEYS[1], KEYS[2]" if "OWNER" in code else "KEYS[1]")
    ]
    assert "@include" not in source


def test_all_scripts_are_tested() -> None:
    folder = files("headrace.election") / "lua"
    assert {path.name.removesuffix(".lua") for path in folder.iterdir() if path.name.endswith(".lua")} == set(SCRIPTS)


def test_the_fence_lies_in_the_slot_of_its_queue() -> None:
    assert fence_key("headrace:emails") == b"{headrace:emails}:fence"
    assert key_slot(fence_key("headrace:emails")) == key_slot(b"{headrace:emails}:topology")
