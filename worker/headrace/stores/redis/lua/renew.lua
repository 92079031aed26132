-- RENEW: extend the leases that are held under their token, whatever the clock says.
--
-- KEYS  1 meta hash, 2 leased zset, 3 lease hash
-- ARGV  1 lease ms, 2 msgpack [key, token, ...], at most 1,000
-- Returns the refused elements (indexes from 0)
-- Cost  O(leases log n). Called by the lease keeper of every worker, once per partition and heartbeat.
local META, LEASED, LEASE = unpack(KEYS)
--@include clock
--@include leased

local ids, keys, _, refused = held(cmsgpack.unpack(ARGV[2]), 2, true)
if #ids > 0 then
  local ends = server_now(redis.call('HGET', META, 't')) + tonumber(ARGV[1])
  local scores = {}
  for _, key in ipairs(keys) do
    scores[#scores + 1] = ends
    scores[#scores + 1] = key
  end
  redis.call('ZREM', LEASED, keys[1]) -- a removal first: at maxmemory the ZADD alone would be refused
  redis.call('ZADD', LEASED, unpack(scores))
end
return refused
