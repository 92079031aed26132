-- LEAVE: a worker that stops is no longer listed and gives the alarm up, so that another one need not wait for its time.
--
-- KEYS  1 hot zset, 2 due zset, 3 alarm hash, 4 workers zset, 5 about hash, 6 gone zset, 7 stopping zset
-- ARGV  1 worker
-- Returns 1 if it held the alarm, else 0
-- Cost  O(log n). Called by each worker at its end.
local HOT, DUE, ALARM, WORKERS, ABOUT, GONE, STOPPING = unpack(KEYS)
--@include clock

redis.call('ZREM', WORKERS, ARGV[1])
redis.call('ZREM', STOPPING, ARGV[1])
-- A result that was not confirmed lets a job come back later: then it is worth knowing where it was.
if redis.call('HEXISTS', ABOUT, ARGV[1]) == 1 then
  redis.call('ZADD', GONE, server_now(), ARGV[1])
  redis.call('PEXPIRE', GONE, 3600000)
end
if redis.call('HGET', ALARM, 'w') ~= ARGV[1] then return 0 end
redis.call('DEL', ALARM)
if redis.call('EXISTS', DUE) == 1 then redis.call('ZADD', HOT, -1, '@') end
return 1
