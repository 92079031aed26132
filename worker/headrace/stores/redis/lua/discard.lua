-- DISCARD: delete a partition that was installed for a promotion which lost. Where it replaced what a deleted queue of the
-- name may have left, there is a tombstone for that one's actors again.
--
-- KEYS  1 meta hash, 2 jobs hash, 3 moving hash, 4 arrived hash, 5 dead zset, 6 seen zset
-- ARGV  1 life of that tombstone in ms
-- Returns 1, or 0 and nothing changed if the partition is not active, or holds anything, be it the nonce of a call
-- Cost  O(1). Called by the promoter that lost.
local META = KEYS[1]
--@include incarnation

local meta = redis.call('HMGET', META, 's', 'i')
if meta[1] ~= 'A' or redis.call('EXISTS', unpack(KEYS, 2, 6)) > 0 then return 0 end
redis.call('UNLINK', META)
if meta[2] then
  redis.call('HSET', META, 's', 'T')
  incarnate(tostring(meta[2] - 1))
  redis.call('PEXPIRE', META, ARGV[1])
end
return 1
