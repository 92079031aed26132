-- DEAD_REMOVE: remove dead letters.
--
-- KEYS  1 dead zset, 2 dead letters hash
-- ARGV  1 msgpack [letter, ...], at most 1,000
-- Returns how many there were
-- Cost  O(letters log n). Called by the command line, after a letter was put back into the queue, or to forget it.
local DEAD, LETTERS = KEYS[1], KEYS[2]
local letters = cmsgpack.unpack(ARGV[1])
if #letters == 0 then return 0 end
redis.call('HDEL', LETTERS, unpack(letters))
return redis.call('ZREM', DEAD, unpack(letters))
