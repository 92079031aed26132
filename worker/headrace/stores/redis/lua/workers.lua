-- WORKERS: which workers there are, and what they say of themselves; or the same of workers that are asked for.
--
-- KEYS  1 workers zset, 2 about hash, 3 gone zset, 4 stopping zset
-- ARGV  1 msgpack [worker, ...], at most 1,000, or '': those that were heard of within a minute
-- Returns {now ms, [worker, heard of at ms, said of itself (msgpack) or '', to claim nothing till ms or -1, gone (0/1), ...]}
--         workers that nobody knows are left out
-- Cost  O(workers log n), at most 1,000. Called by the operator, the command line, and workers that find lost jobs.
local WORKERS, ABOUT, GONE, STOPPING = unpack(KEYS)
--@include clock

local now = server_now()
local asked
if ARGV[1] == '' then
  asked = redis.call('ZREVRANGEBYSCORE', WORKERS, '+inf', '(' .. (now - 60000), 'LIMIT', 0, 1000)
else
  asked = cmsgpack.unpack(ARGV[1])
end
local found = {}
for _, worker in ipairs(asked) do
  local heard = redis.call('ZSCORE', WORKERS, worker)
  local gone = 0
  if not heard then
    heard, gone = redis.call('ZSCORE', GONE, worker), 1
  elseif tonumber(heard) <= now - 60000 then
    gone = 1
  end
  if heard then
    local till = tonumber(redis.call('ZSCORE', STOPPING, worker) or -1)
    if till <= now then till = -1 end
    local n = #found
    found[n + 1], found[n + 2] = worker, tonumber(heard)
    found[n + 3], found[n + 4], found[n + 5] = redis.call('HGET', ABOUT, worker) or '', till, gone
  end
end
return {now, found}
