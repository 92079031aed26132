-- STATUSES: where jobs are that are live in this partition.
--
-- KEYS  1 meta hash, 2 jobs hash, 3 lease hash, 4 leased zset, 5 scheduled zset, 6 retry zset, 7 park zset, 8 moving hash
-- ARGV  stored ids, at most 200
-- Returns {now ms, newest entry of the finished jobs or '', [state, at or -1, token or '', ...]: a state of '' is not live}
--         Fewer than were asked for once their records have 256 KiB, which are read if jobs are parked: the caller asks again
-- Cost  O(ids log n), and the bytes of their records if jobs are parked. Called by those who wait for jobs, and to tell where a job is.
local META, JOBS, LEASE, LEASED, SCHEDULED, RETRY, PARK, MOVING = unpack(KEYS)
--@include clock
--@include live

local meta = redis.call('HMGET', META, 't', 'fin')
local found, reads, bytes = {}, redis.call('EXISTS', PARK) == 1, 0
for n, id in ipairs(ARGV) do
  if reads then
    bytes = bytes + redis.call('HSTRLEN', JOBS, id)
    if n > 1 and bytes > 262144 then break end
  end
  local where = live(id) or {'', -1, ''}
  for part = 1, 3 do found[n * 3 - 3 + part] = where[part] end
end
return {server_now(meta[1]), string.match(meta[2] or '', '%d+%-%d+') or '', found}
