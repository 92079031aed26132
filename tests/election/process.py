"""A process that campaigns, and writes to a list in Redis as long as it leads. Started by test_processes.

Its standard output tells each change, one word list a line. SIGTERM makes it resign, and end with exit code 0. With
``--asleep PID`` it has no thread, and SIGUSR1 puts the machine to sleep under it, as in the namespaces of that process.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import time
from collections.abc import Callable
from functools import partial

import redis.asyncio as redis_client
from redis.exceptions import RedisError, ResponseError

from headrace.election import FAST, Elector, RankedLock, Reason, Term, Token
from headrace.election.backends.lease import LeaseLock
from headrace.election.backends.mongo import MongoLock
from headrace.election.backends.redis import RedisLock
from headrace.election.redis_fence import RedisFence, fence_key
from headrace.election.thread import ElectorThread
from headrace.redis.by_url import open_client
from headrace.redis.scripts import fragment
from tests.election.host_sleep import fall_asleep_and_wake

WORK = f"""
local FENCE, WORK = KEYS[1], KEYS[2]
{fragment("headrace.redis", "fenced")}
local ruling = fenced(FENCE, ARGV[1], ARGV[2], tonumber(ARGV[3]))
if ruling then return redis.error_reply('FENCED ' .. ruling) end
return redis.call('RPUSH', WORK, ARGV[1] .. ' ' .. ARGV[4])
"""


def say(*words: object) -> None:
    print(*words, flush=True)


class Alone:
    """An elector on the loop of the application, as long as nothing there blocks."""

    def __init__(self, elector: Elector) -> None:
        self._elector = elector
        self.fenced = elector.fenced

    def start(self) -> None:
        self._running = asyncio.create_task(self._elector.run())

    async def stop(self) -> bool:
        self._elector.stop()
        await self._running
        await self._elector.close()
        return True

    def sleep(self, pid: int, *_: object) -> None:
        """Sleep; asked before and after, with nothing done between, does it lead?"""
        leads, begun = self._elector.is_leader(), time.monotonic()
        fall_asleep_and_wake(pid)
        say("slept", leads, self._elector.is_leader(), int(time.monotonic() - begun))


class Work:
    """The leader's work: a script every few milliseconds."""

    def __init__(self, url: str, tag: str, name: str) -> None:
        self._redis = redis_client.Redis.from_url(url, socket_timeout=1)
        self._keys = (fence_key(tag), f"{{{tag}}}:work")
        self._name = name
        self.report: Callable[[Token], None] = lambda token: None

    async def on_started(self, term: Term) -> None:
        say("started", term.epoch, term.backend)
        while True:
            if (token := term.token()) is not None:
                try:
                    await self._redis.eval(WORK, 2, *self._keys, token.epoch, token.nonce, 4000, self._name)
                except ResponseError as error:
                    if "FENCED" in str(error):
                        say("fenced", token.epoch)
                        self.report(token)
                        await asyncio.sleep(0.05)
                except (RedisError, OSError):
                    await asyncio.sleep(0.05)
            await asyncio.sleep(0.01)

    async def on_stopped(self, term: Term, reason: Reason) -> None:
        say("stopped", reason)

    def on_new_leader(self, identity: str) -> None:
        say("leader", identity)


async def main() -> int:
    parser = argparse.ArgumentParser()
    for option in ("redis", "tag", "name", "namespace", "lease", "mongo"):
        parser.add_argument(f"--{option}")
    parser.add_argument("--asleep", type=int)
    chosen = parser.parse_args()
    work, loop = Work(chosen.redis, chosen.tag, chosen.name), asyncio.get_running_loop()

    def build() -> Elector:
        locks = []
        if chosen.lease:
            locks.append(RankedLock("lease", 3, LeaseLock(chosen.lease, chosen.namespace)))
        if chosen.mongo:
            lock = MongoLock(chosen.mongo, chosen.tag, call_timeout=FAST.call_timeout)
            locks.append(RankedLock("mongo", 2, lock, hold_down=False))
        connect = partial(open_client, chosen.redis, call_timeout=FAST.call_timeout)
        locks.append(RankedLock("redis", 1, RedisLock(connect(), chosen.tag)))
        fence = RedisFence(connect(), chosen.tag)
        return Elector(locks, fence, work, FAST, application=loop)

    elector: Alone | ElectorThread = ElectorThread(build)
    if chosen.asleep:
        elector = alone = Alone(build())
        signal.signal(signal.SIGUSR1, partial(alone.sleep, chosen.asleep))
    work.report = elector.fenced
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    elector.start()
    say("campaigning")
    await ended.wait()
    done = await elector.stop()
    say("ended", done)
    await work._redis.aclose()
    return 0 if done else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
