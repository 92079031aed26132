-- WRITE_STATS: store what was measured of a queue, and let its counters grow by what its partitions' have grown.
--
-- KEYS  1 stats hash, 2 topology string
-- ARGV  1 time of the measurement that is replaced, '0' if there is none, 2 the depths (JSON), then for each version its
--       number and its counters: enqueued, arrived, expired, dead dropped
-- Returns 1, or 0 and nothing changed if another measurement was stored since, or the queue does not exist
-- Cost  O(versions). Called by headrace.statistics.summarise.
local STATS, TOPOLOGY = unpack(KEYS)
--@include clock

local NAMES = {'enqueued', 'arrived', 'expired', 'dead_dropped'}
local known = redis.call('HMGET', STATS, 'at', 'seen')
if (known[1] or '0') ~= ARGV[1] or redis.call('EXISTS', TOPOLOGY) == 0 then return 0 end
local now = server_now(tonumber(known[1] or 0) + 1) -- no two measurements have one time
local before = known[2] and cmsgpack.unpack(known[2]) or {}
local seen, grown = {}, {0, 0, 0, 0}
for i = 3, #ARGV, 5 do
  local last, current = before[ARGV[i]] or {0, 0, 0, 0}, {}
  for n = 1, 4 do
    current[n] = tonumber(ARGV[i + n])
    -- One that went back was begun anew, with its partition: what it counted before is counted already.
    grown[n] = grown[n] + math.max(0, current[n] - last[n])
  end
  seen[ARGV[i]] = current
end
redis.call('HDEL', STATS, 'depth', 'seen') -- a removal first: at maxmemory the HSET alone would be refused
redis.call('HSET', STATS, 'at', now, 'depth', ARGV[2], 'seen', cmsgpack.pack(seen))
for n, name in ipairs(NAMES) do redis.call('HINCRBY', STATS, name, grown[n]) end
return 1
