-- CLOSE: a draining partition without live jobs becomes closed: it stays empty for ever, which is the proof that
-- completing a version needs.
--
-- KEYS  1 meta hash, 2-4 ready lists of lanes 0-2, 5 scheduled zset, 6 retry zset, 7 leased zset, 8 jobs hash,
--       9 park zset, 10 moving hash, 11 arrived hash, 12 dead zset, 13 suspects list, 14 alone list
-- ARGV  none
-- Returns the counts of lib/counts.lua, the state as it is afterwards
-- Cost  O(1). Called by the operator and by headrace.lifecycle.complete.
local META, R0, R1, R2, SCHEDULED, RETRY, LEASED, JOBS, PARK, MOVING, ARRIVED, DEAD, SUSPECTS, ALONE = unpack(KEYS)
--@include clock
--@include counts

local sizes = counts()
-- No record may be left either: what has one is a job, whatever became of its index.
if sizes[1] == 'D' and live(sizes) == 0 and redis.call('EXISTS', JOBS) == 0 then
  redis.call('HDEL', META, '') -- a removal first: at maxmemory the HSET alone would be refused
  redis.call('HSET', META, 's', 'C')
  sizes[1] = 'C'
end
return sizes
