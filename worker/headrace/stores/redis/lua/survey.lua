-- SURVEY: what the statistics need of a partition, in one read-only step: its sizes, its growing counters, and how many
-- delayed jobs become due soon.
--
-- KEYS  1 meta hash, 2-4 ready lists of lanes 0-2, 5 scheduled zset, 6 retry zset, 7 leased zset, 8 jobs hash,
--       9 park zset, 10 moving hash, 11 arrived hash, 12 dead zset, 13 suspects list, 14 alone list
-- ARGV  seconds from now, each
-- Returns {counts of lib/counts.lua, [enqueued, arrived, expired, dead dropped], [due within each of ARGV]}
-- Cost  O(log n) per time. Called by headrace.statistics.summarise.
local META, R0, R1, R2, SCHEDULED, RETRY, LEASED, JOBS, PARK, MOVING, ARRIVED, DEAD, SUSPECTS, ALONE = unpack(KEYS)
--@include clock
--@include counts

local sizes = counts()
local grown = redis.call('HMGET', META, 'enq', 'rdy', 'exp', 'drop')
for n = 1, 4 do grown[n] = tonumber(grown[n] or 0) end
local due = {}
for n, seconds in ipairs(ARGV) do
  due[n] = 0
  if sizes[11] >= 0 then
    local at = sizes[13] + seconds * 1000
    due[n] = redis.call('ZCOUNT', SCHEDULED, '-inf', at) + redis.call('ZCOUNT', RETRY, '-inf', at)
  end
end
return {sizes, grown, due}
