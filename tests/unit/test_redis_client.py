"""The connection to Redis: no caller waits for an answer that cannot come."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from headrace.errors import StoreUnavailable
from headrace.redis.client import RedisClient
from headrace.redis.cluster import ClusterClient
from headrace.redis.pipeline import PIPELINE_CALLS, Command
from headrace.redis.scripts import Script

URL = "redis://127.0.0.1:1/0"


class Broken(RedisClient):
    """Fails in a way that nobody foresaw, as often as told; then answers."""

    def __init__(self, times: int) -> None:
        super().__init__(URL)
        self.times = times

    async def round_trip(self, commands: Sequence[Command], *, wait_ms: int = 0) -> list[Any]:
        await asyncio.sleep(0)
        if self.times:
            self.times -= 1
            raise TypeError("a defect")
        return [b"OK"] * len(commands)


async def test_an_error_that_nobody_foresaw_reaches_every_caller_and_ends_nothing_else() -> None:
    client = Broken(2)
    calls = [client.command("GET", f"key-{n}") for n in range(2 * PIPELINE_CALLS + 1)]
    async with asyncio.timeout(10):
        answers = await asyncio.gather(*calls, return_exceptions=True)
    assert [str(each) for each in answers[: 2 * PIPELINE_CALLS]] == ["a defect"] * 2 * PIPELINE_CALLS
    assert answers[-1] == b"OK"
    assert await client.command("GET", "key") == b"OK"
    await client.close()


async def test_calls_under_way_and_those_that_follow_end_when_the_connection_is_closed() -> None:
    client = Broken(0)
    waiting = [client.command("GET", "key") for _ in range(2 * PIPELINE_CALLS)]
    await asyncio.sleep(0)
    await client.close()
    answers = await asyncio.gather(*waiting, return_exceptions=True)
    assert {str(each) for each in answers} == {"redis 127.0.0.1:1/0: the connection was closed"}
    for call in (client.check, lambda: client.blocking(1, "BZPOPMIN", "key", 1), lambda: client.asking("GET", "key")):
        with pytest.raises(StoreUnavailable, match="the connection was closed"):
            await call()
    with pytest.raises(StoreUnavailable, match="the connection was closed"):
        await client.command("GET", "key")
    await client.close()


async def test_a_closed_cluster_connection_opens_no_new_one() -> None:
    client = ClusterClient("redis+cluster://127.0.0.1:1")
    await client.close()
    for call in (client.check(), client.command("GET", "key"), client.blocking(1, "BZPOPMIN", "key", 1)):
        with pytest.raises(StoreUnavailable, match="the connection was closed"):
            await call
    assert client._nodes == {}


class Held(RedisClient):
    """Answers a round trip when the test says so; ``trips`` holds the commands of each one, and what it waits for."""

    def __init__(self) -> None:
        super().__init__(URL)
        self.trips: list[tuple[list[Command], asyncio.Event]] = []

    async def round_trip(self, commands: Sequence[Command], *, wait_ms: int = 0) -> list[Any]:
        gate = asyncio.Event()
        self.trips.append((list(commands), gate))
        await gate.wait()
        return [command[-1] for command in commands]

    def sent(self) -> list[list[Any]]:
        return [[command[-1] for command in commands] for commands, _ in self.trips]

    async def settled(self, trips: int) -> list[list[Any]]:
        """Return what was sent once there are so many round trips, and no more follow."""
        async with asyncio.timeout(10):
            while len(self.trips) < trips:
                await asyncio.sleep(0)
        for _ in range(10):
            await asyncio.sleep(0)
        return self.sent()


OVERLAPPING, ALONE = Script("claim", "", "1", overlaps=True), Script("tick", "", "2")


async def test_two_round_trips_of_a_busy_worker_are_under_way_at_once_and_calls_of_one_turn_go_together() -> None:
    client = Held()
    calls = [client.run(OVERLAPPING, (), (1,))]
    assert await client.settled(1) == [[1]]
    calls += [client.run(OVERLAPPING, (), (number,)) for number in (2, 3)]
    assert await client.settled(2) == [[1], [2, 3]]
    calls += [client.run(OVERLAPPING, (), (number,)) for number in (4, 5)]
    assert await client.settled(2) == [[1], [2, 3]]
    client.trips[1][1].set()  # the later one is answered first
    assert await client.settled(3) == [[1], [2, 3], [4, 5]]
    assert [call.done() for call in calls] == [False, True, True, False, False]
    for _, gate in client.trips:
        gate.set()
    assert await asyncio.gather(*calls) == [1, 2, 3, 4, 5]
    await client.close()


async def test_other_calls_wait_for_the_round_trip_that_is_under_way() -> None:
    client = Held()
    calls = [client.run(ALONE, (), (1,)), client.run(OVERLAPPING, (), (2,))]
    assert await client.settled(2) == [[1], [2]]
    calls += [client.run(ALONE, (), (number,)) for number in (3, 4)]
    assert await client.settled(2) == [[1], [2]]
    client.trips[0][1].set()
    assert await client.settled(3) == [[1], [2], [3, 4]]
    await client.close()
    answers = await asyncio.gather(*calls, return_exceptions=True)
    assert [isinstance(each, StoreUnavailable) for each in answers] == [False, True, True, True]


@pytest.mark.parametrize("callers", [1, 2, 5])
async def test_a_call_that_is_made_while_a_round_trip_ends_is_sent(callers: int) -> None:
    """Whatever turn of the loop it falls into."""
    client, answered = Broken(0), 0

    async def caller(number: int) -> None:
        nonlocal answered
        for n in range(60):
            await client.run(OVERLAPPING, (), (number,))
            answered += 1
            for _ in range((n + number) % 5):
                await asyncio.sleep(0)

    async with asyncio.timeout(10):
        await asyncio.gather(*map(caller, range(callers)))
    assert answered == 60 * callers
    await client.close()


async def test_a_sender_that_is_cancelled_by_others_leaves_nobody_waiting_for_ever() -> None:
    client = Broken(0)
    first = client.run(OVERLAPPING, (), (1,))
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()  # before it has begun
    await asyncio.sleep(0)
    async with asyncio.timeout(10):
        assert await client.run(OVERLAPPING, (), (2,)) == b"OK"
        assert await first == b"OK"
    await client.close()
