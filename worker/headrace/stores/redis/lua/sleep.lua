-- SLEEP: from now on an enqueue into this partition says that it woke it. Only if nothing in it needs a worker: a ready
-- or leased job, one that is due soon, one on its way between versions. A queue that is held runs none but leased ones.
--
-- KEYS  1 meta hash, 2-4 ready lists of lanes 0-2, 5 suspects list, 6 alone list, 7 scheduled zset, 8 retry zset,
--       9 leased zset, 10 moving hash, 11 arrived hash
-- ARGV  1 horizon, ms: what is due within it counts as due
-- Returns {asleep (0/1), earliest waiting ms or -1, now}; 0: nothing was changed.
--         Absent, closed or tombstone: asleep, for there is nothing to wake.
-- Cost  O(1). Called by the operator, for every partition of a queue, before its last worker goes.
local META, R0, R1, R2, SUSPECTS, ALONE, SCHEDULED, RETRY, LEASED, MOVING, ARRIVED = unpack(KEYS)
--@include clock

local meta = redis.call('HMGET', META, 's', 't', 'hold')
local now = server_now(meta[2])
if meta[1] ~= 'A' and meta[1] ~= 'D' then return {1, -1, now} end
local due = -1
for _, waiting in ipairs({SCHEDULED, RETRY}) do
  local head = redis.call('ZRANGE', waiting, 0, 0, 'WITHSCORES')
  local at = head[2] and tonumber(head[2])
  if at and (due < 0 or at < due) then due = at end
end
if redis.call('EXISTS', LEASED, MOVING, ARRIVED) > 0 then return {0, due, now} end
if meta[3] ~= '1' then
  if redis.call('EXISTS', R0, R1, R2, SUSPECTS, ALONE) > 0 then return {0, due, now} end
  if due >= 0 and due <= now + tonumber(ARGV[1]) then return {0, due, now} end
end
redis.call('HDEL', META, '') -- a removal first: at maxmemory the HSET alone would be refused
redis.call('HSET', META, 'asleep', 1)
return {1, due, now}
