-- DISCARD: delete a partition that was installed for a promotion which lost, without a tombstone.
--
-- KEYS  1 meta hash, 2 jobs hash, 3 moving hash, 4 arrived hash, 5 dead zset, 6 seen zset
-- ARGV  none
-- Returns 1, or 0 and nothing changed if the partition is not active, or holds anything, be it the nonce of a call
-- Cost  O(1). Called by the promoter that lost.
if redis.call('HGET', KEYS[1], 's') ~= 'A' or redis.call('EXISTS', unpack(KEYS, 2, 6)) > 0 then return 0 end
redis.call('UNLINK', KEYS[1])
return 1
