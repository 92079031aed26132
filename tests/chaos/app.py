"""What the workers of a chaos run do: jobs that count their runs, a job every second, and effects of their leader.

An effect is a line in a list, written by a script that begins with the fence, as all scripts of a leader do. It stands
for a duty: it begins with the duties of a term, and never stops. One that is refused is counted.
"""

from __future__ import annotations

import asyncio
import os

import redis.asyncio as redis_client
from redis.exceptions import RedisError

from headrace import App, Context, LeaderTerm

QUEUE = "chaos"
EVERY = 0.02
EFFECTS, REFUSED, RUNS = "chaos:effects", "chaos:refused", "chaos:runs"

EFFECT = """
-- KEYS 1 fence of the queue, 2 effects, 3 refused effects by name; ARGV 1 epoch, 2 name of the worker
if redis.call('HGET', KEYS[1], 'epoch') ~= ARGV[1] then
  redis.call('HINCRBY', KEYS[3], ARGV[2], 1)
  return 0
end
local t = redis.call('TIME')
redis.call('RPUSH', KEYS[2], ARGV[1] .. ' ' .. ARGV[2] .. ' ' .. t[1] * 1000 + math.floor(t[2] / 1000))
return 1
"""

NAME = os.environ.get("HEADRACE_WORKER_ID", "")
app = App()


@app.dependency
def effects() -> redis_client.Redis:
    """The connection for effects."""
    return connect()


def connect() -> redis_client.Redis:
    return redis_client.Redis.from_url(os.environ["HEADRACE_REDIS_URL"], socket_timeout=2)


@app.handler("count")
async def count(ctx: Context, payload: None, effects: redis_client.Redis) -> None:
    await effects.hincrby(RUNS, ctx.job.id, 1)


app.schedule("tick", "count", queue=QUEUE, every=1, catch_up="all", max_catch_up=1000)


@app.on_elected
async def lead(term: LeaderTerm) -> None:
    """Have an effect every few milliseconds, until the term ends."""
    async with connect() as connection:
        keys = (f"{{headrace:{QUEUE}}}:fence", EFFECTS, REFUSED)
        while True:
            if (epoch := term.leader_epoch()) is not None:
                try:
                    await connection.eval(EFFECT, len(keys), *keys, str(epoch), NAME)
                except (RedisError, OSError):
                    await asyncio.sleep(EVERY)
            await asyncio.sleep(EVERY)
