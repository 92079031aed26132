-- REMOVE: delete a closed partition's keys and leave a tombstone, so that neither a slow promoter nor a stale producer
-- can bring it back.
--
-- KEYS  1 meta hash, 2-18 every other key of the partition; standalone form also: 19 hot zset, 20 due zset, 21 parked zset
-- ARGV  1 label "version:partition", 2 life of the tombstone in ms
-- Returns 1, or 0 and nothing changed if the partition is active or draining
-- Cost  O(1): keys are unlinked. Called by headrace.lifecycle.complete.
local state = redis.call('HGET', KEYS[1], 's')
if state == 'A' or state == 'D' then return 0 end
redis.call('UNLINK', unpack(KEYS, 1, 18))
redis.call('HSET', KEYS[1], 's', 'T')
redis.call('PEXPIRE', KEYS[1], ARGV[2])
if KEYS[19] then
  redis.call('ZREM', KEYS[19], ARGV[1])
  redis.call('ZREM', KEYS[20], ARGV[1])
  redis.call('ZREM', KEYS[21], ARGV[1])
end
return 1
