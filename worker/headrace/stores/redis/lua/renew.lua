-- RENEW: extend the leases that are held under their token, whatever the clock says, and keep what their runs report.
--
-- KEYS  1 meta hash, 2 leased zset, 3 lease hash, 4 mut hash
-- ARGV  1 lease ms, 2 msgpack [key, token, ...], at most 1,000,
--       3 msgpack [element (from 0), value, note, ...] of the runs that report their progress, at most 250, or ''
-- Returns the refused elements (indexes from 0)
-- Cost  O(leases log n). Called by the lease keeper of every worker, once per partition and heartbeat, and at most once
--       a second for a job that reports.
local META, LEASED, LEASE, MUT = unpack(KEYS)
--@include clock
--@include leased

local ids, keys, positions, refused = held(cmsgpack.unpack(ARGV[2]), 2, true)
if #ids > 0 then
  local now = server_now(redis.call('HGET', META, 't'))
  local ends = now + tonumber(ARGV[1])
  local scores = {}
  for _, key in ipairs(keys) do
    scores[#scores + 1] = ends
    scores[#scores + 1] = key
  end
  redis.call('ZREM', LEASED, keys[1]) -- a removal first: at maxmemory the ZADD alone would be refused
  redis.call('ZADD', LEASED, unpack(scores))
  if ARGV[3] ~= '' then
    local named = {}
    for n, id in ipairs(ids) do named[(positions[n] - 1) / 2] = id end
    local reports = cmsgpack.unpack(ARGV[3])
    for i = 1, #reports, 3 do
      local id = named[reports[i]]
      if id then
        local packed = redis.call('HGET', MUT, id)
        local facts = packed and cmsgpack.unpack(packed) or {0, 0, '', {}, 0, 0}
        facts[7] = {reports[i + 1], reports[i + 2], now}
        redis.call('HSET', MUT, id, cmsgpack.pack(facts))
      end
    end
  end
end
return refused
