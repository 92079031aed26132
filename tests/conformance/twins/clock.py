"""Time that passes only when told, in memory and in the scripts of a real server alike.

A script gets the time by TIME, and lets keys end by PEXPIRE, PX and PTTL. Ahead of the source of each script stands a
prelude that answers these from keys of the test's own. The source itself is what runs in production, byte for byte.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from functools import cache
from typing import Any, cast

from headrace.redis.client import Argument, RedisClient
from headrace.redis.pipeline import Replicas
from headrace.redis.scripts import Script
from headrace.stores.redis import RedisStore

START_MS = 1_700_000_000_000
CLOCK, ENDS = b"twins:clock", b"twins:ends"
"""The time, ms; and a hash of keys that end, with the ms at which they do."""

PRELUDE = """
local server = redis
local redis = {error_reply = server.error_reply, sha1hex = server.sha1hex}
local function twins_now() return tonumber(server.call('GET', 'twins:clock')) end
local function twins_ends(key, ms) server.call('HSET', 'twins:ends', key, string.format('%.0f', twins_now() + ms)) end
local REMOVALS = {ZREM = true, ZREMRANGEBYSCORE = true, HDEL = true, ZPOPMIN = true, LPOP = true, XDEL = true}
function redis.call(command, key, ...)
  local arguments = {...}
  if command == 'TIME' then
    local now = twins_now()
    return {string.format('%.0f', math.floor(now / 1000)), tostring(now % 1000 * 1000)}
  elseif command == 'PEXPIRE' then
    local there = server.call('EXISTS', key)
    if there == 1 then twins_ends(key, tonumber(arguments[1])) end
    return there
  elseif command == 'PTTL' then
    if server.call('EXISTS', key) == 0 then return -2 end
    local ends = server.call('HGET', 'twins:ends', key)
    return ends and tonumber(ends) - twins_now() or -1
  elseif command == 'SET' and arguments[2] == 'PX' then
    twins_ends(key, tonumber(arguments[3]))
    return server.call('SET', key, arguments[1])
  elseif command == 'UNLINK' or command == 'DEL' then
    server.call('HDEL', 'twins:ends', key, unpack(arguments))
  elseif command == 'XADD' then
    for n, argument in ipairs(arguments) do
      if argument == '*' then
        arguments[n] = string.format('%.0f-*', twins_now())
        break
      end
    end
  end
  local reply = server.call(command, key, unpack(arguments))
  if REMOVALS[command] and server.call('EXISTS', key) == 0 then server.call('HDEL', 'twins:ends', key) end
  return reply
end
function redis.pcall(...)
  local whole, reply = pcall(redis.call, ...)
  if whole or type(reply) == 'table' then return reply end
  return {err = tostring(reply)}
end
"""


@cache
def timed(script: Script) -> Script:
    """Return the script with the prelude ahead of it."""
    source = PRELUDE + script.source
    return Script(script.name, source, hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest())


class TimedClient(RedisClient):
    """A client whose scripts see the time of the test."""

    def run(
        self, script: Script, keys: Sequence[bytes], args: Sequence[Argument], confirm: Replicas | None = None
    ) -> asyncio.Future[Any]:
        return super().run(timed(script), keys, args, confirm)


class TimedRedisStore(RedisStore):
    """The store of a server that belongs to the test alone. Its clock stands until `set_clock`."""

    def __init__(self, url: str) -> None:
        super().__init__(url, prefix="twins")
        self._client = TimedClient(url)


class TwinClock:
    """The clock of both: call it for the time. ``server``: a client of the library, which the caller closes."""

    def __init__(self, server: Any) -> None:
        self._server = server
        self._now = START_MS
        self.advance(0)

    def __call__(self) -> int:
        return self._now

    def advance(self, ms: int) -> None:
        """Let time pass, and end the keys whose time has come."""
        self._now += ms
        self._server.set(CLOCK, self._now)
        ends = cast(dict[bytes, bytes], self._server.hgetall(ENDS))
        if ended := [key for key, at in ends.items() if int(at) <= self._now]:
            self._server.delete(*ended)
            self._server.hdel(ENDS, *ended)
