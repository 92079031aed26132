-- TICK: turn what is due into hints, note that the worker lives, and tell who holds the alarm.
--
-- KEYS  1 hot zset, 2 due zset, 3 alarm hash, 4 workers zset, 5 about hash, 6 gone zset, 7 stopping zset
-- ARGV  1 worker, 2 what it says of itself (msgpack), or ''
-- Returns {ms until the next due time if this worker holds the alarm, else -1; ms for which it is to claim nothing, or -1;
--          until when (ms), or 0}
-- Cost  O(due log n), at most 200; at most 100 silent workers each are moved and forgotten. Called by each worker at its
--       alarm, and at least every 5 s.
local HOT, DUE, ALARM, WORKERS, ABOUT, GONE, STOPPING = unpack(KEYS)
--@include clock
--@include alarm

redis.call('ZREM', HOT, '@') -- a removal first: at maxmemory a ZADD alone would be refused
local now = server_now()
for _, label in ipairs(redis.call('ZRANGEBYSCORE', DUE, '-inf', now, 'LIMIT', 0, 200)) do
  redis.call('ZADD', HOT, 'NX', now, label)
  redis.call('ZADD', DUE, now + 2000, label)
end
redis.call('ZADD', WORKERS, now, ARGV[1])
if ARGV[2] ~= '' then redis.call('HSET', ABOUT, ARGV[1], ARGV[2]) end
-- One that was not heard of for a minute is gone; what it said is kept for an hour, for those who find its jobs.
local silent = redis.call('ZRANGEBYSCORE', WORKERS, '-inf', now - 60000, 'WITHSCORES', 'LIMIT', 0, 100)
for n = 1, #silent, 2 do
  redis.call('ZREM', WORKERS, silent[n])
  redis.call('ZADD', GONE, silent[n + 1], silent[n])
end
for _, worker in ipairs(redis.call('ZRANGEBYSCORE', GONE, '-inf', now - 3600000, 'LIMIT', 0, 100)) do
  redis.call('ZREM', GONE, worker)
  redis.call('HDEL', ABOUT, worker)
end
redis.call('ZREMRANGEBYSCORE', STOPPING, '-inf', now)
-- The last worker of a deleted queue leaves nothing behind.
for _, key in ipairs({WORKERS, ABOUT, GONE}) do redis.call('PEXPIRE', key, 3600000) end
local till = tonumber(redis.call('ZSCORE', STOPPING, ARGV[1]) or 0)
return {alarm(now, ARGV[1]), till == 0 and -1 or till - now, till}
