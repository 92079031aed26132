-- TICK: turn what is due into hints, note that the worker lives, and tell who holds the alarm.
--
-- KEYS  1 hot zset, 2 due zset, 3 alarm hash, 4 workers zset
-- ARGV  1 worker
-- Returns ms until the next due time if this worker holds the alarm, else -1
-- Cost  O(due log n), at most 200. Called by each worker at its alarm, and at least every 5 s.
local HOT, DUE, ALARM, WORKERS = unpack(KEYS)
--@include clock
--@include alarm

redis.call('ZREM', HOT, '@') -- a removal first: at maxmemory a ZADD alone would be refused
local now = server_now()
for _, label in ipairs(redis.call('ZRANGEBYSCORE', DUE, '-inf', now, 'LIMIT', 0, 200)) do
  redis.call('ZADD', HOT, 'NX', now, label)
  redis.call('ZADD', DUE, now + 2000, label)
end
redis.call('ZADD', WORKERS, now, ARGV[1])
redis.call('ZREMRANGEBYSCORE', WORKERS, '-inf', now - 60000)
redis.call('PEXPIRE', WORKERS, 60000) -- the last worker of a deleted queue leaves nothing behind
return alarm(now, ARGV[1])
