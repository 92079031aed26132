-- REPAIR_ENTRY: remove what cannot be read from a key, if it is still as the audit has found it.
--
-- KEYS  1 the key: a hash, a zset or a stream
-- ARGV  1 its kind, 2 field, member or entry, 3 value that the field had ('' for the others), then fields of a hash that mean
--       nothing without it
-- Returns 1, or 0 and nothing changed
-- Cost  O(log n). Called by the audit.
local KEY = KEYS[1]
if ARGV[1] == 'zset' then return redis.call('ZREM', KEY, ARGV[2]) end
if ARGV[1] == 'stream' then return redis.call('XDEL', KEY, ARGV[2]) end
if redis.call('HGET', KEY, ARGV[2]) ~= ARGV[3] then return 0 end
redis.call('HDEL', KEY, ARGV[2], unpack(ARGV, 4))
return 1
