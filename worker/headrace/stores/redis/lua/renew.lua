-- RENEW: extend the leases that are held under their token, whatever the clock says, and keep what their runs report.
--
-- KEYS  1 meta hash, 2 leased zset, 3 lease hash, 4 mut hash
-- ARGV  1 lease ms, 2 msgpack [key, token, ...], at most 1,000,
--       3 msgpack [element (from 0), value, note, ...] of the runs that report their progress, at most 250, or ''
-- Returns {refused elements (indexes from 0), reports that were dealt with, from the first: as many as lib/fitting.lua says;
--          the caller sends the others again}
-- Cost  O(leases log n + bytes of the reporting jobs' histories). Called by the lease keeper of every worker, once per partition and heartbeat, and at most once
--       a second for a job that reports.
local META, LEASED, LEASE, MUT = unpack(KEYS)
--@include clock
--@include leased
--@include changes
--@include fitting

local ids, keys, positions, refused = held(cmsgpack.unpack(ARGV[2]), 2, true)
local reports = ARGV[3] ~= '' and cmsgpack.unpack(ARGV[3]) or {}
local reported = #reports / 3
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
  if reported > 0 then
    local named, reporting = {}, {}
    for n, id in ipairs(ids) do named[(positions[n] - 1) / 2] = id end
    for n = 1, reported do reporting[n] = named[reports[n * 3 - 2]] or '' end
    reported = fitting(reporting, 250)
    for i = 1, reported * 3, 3 do
      local id = reporting[(i + 2) / 3]
      if id ~= '' then
        local facts, events = facts_of(redis.call('HGET', MUT, id))
        facts[7] = {reports[i + 1], reports[i + 2], now}
        redis.call('HSET', MUT, id, cmsgpack.pack(facts) .. events)
      end
    end
  end
end
return {refused, reported}
