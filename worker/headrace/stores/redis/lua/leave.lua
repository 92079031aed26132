-- LEAVE: a worker that stops is no longer listed and gives the alarm up, so that another one need not wait for its time.
--
-- KEYS  1 hot zset, 2 due zset, 3 alarm hash, 4 workers zset
-- ARGV  1 worker
-- Returns 1 if it held the alarm, else 0
-- Cost  O(log n). Called by each worker at its end.
local HOT, DUE, ALARM, WORKERS = unpack(KEYS)

redis.call('ZREM', WORKERS, ARGV[1])
if redis.call('HGET', ALARM, 'w') ~= ARGV[1] then return 0 end
redis.call('DEL', ALARM)
if redis.call('EXISTS', DUE) == 1 then redis.call('ZADD', HOT, -1, '@') end
return 1
