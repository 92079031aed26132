-- STOP_CLAIMING: let workers claim nothing for a while, or let them claim again.
--
-- KEYS  1 stopping zset
-- ARGV  1 for how long, ms, 2 msgpack [worker, ...], at most 1,000
-- Returns 1
-- Cost  O(workers log n). Called by whoever takes workers away. They read it with their next tick.
local STOPPING = KEYS[1]
--@include clock

local now = server_now()
redis.call('ZREMRANGEBYSCORE', STOPPING, '-inf', now)
for _, worker in ipairs(cmsgpack.unpack(ARGV[2])) do
  if tonumber(ARGV[1]) > 0 then
    redis.call('ZADD', STOPPING, now + ARGV[1], worker)
    if redis.call('PTTL', STOPPING) < tonumber(ARGV[1]) then redis.call('PEXPIRE', STOPPING, ARGV[1]) end
  else
    redis.call('ZREM', STOPPING, worker)
  end
end
return 1
