-- REMOVE: delete a closed partition's keys and leave a tombstone, so that neither a slow promoter nor a stale producer
-- can bring it back. Of a queue that is being deleted: whatever its state.
--
-- KEYS  1 meta hash, 2-19 every other key of the partition; standalone form also: 20 hot zset, 21 due zset, 22 parked zset
-- ARGV  1 label "version:partition", 2 life of the tombstone in ms, 3 incarnation of the queue, 4 whatever its state (0/1)
-- Returns 1, or 0 and nothing changed if the partition is active or draining, or belongs to a later queue of this name
-- Cost  O(1): keys are unlinked. Called by headrace.lifecycle.complete and headrace.deletion.
local META = KEYS[1]
--@include incarnation

local meta = redis.call('HMGET', META, 's', 'i')
local age = compared(meta[2], ARGV[3])
if meta[1] and age > 0 then return 0 end
if age == 0 and ARGV[4] ~= '1' and (meta[1] == 'A' or meta[1] == 'D') then return 0 end
redis.call('UNLINK', unpack(KEYS, 1, 19))
redis.call('HSET', META, 's', 'T')
incarnate(ARGV[3])
redis.call('PEXPIRE', META, ARGV[2])
if KEYS[20] then
  redis.call('ZREM', KEYS[20], ARGV[1])
  redis.call('ZREM', KEYS[21], ARGV[1])
  redis.call('ZREM', KEYS[22], ARGV[1])
end
return 1
