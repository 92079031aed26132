-- WRITE_SCALING: keep what whoever scales the workers remembers of the queue, with its statistics.
--
-- KEYS  1 stats hash, 2 topology string
-- ARGV  1 the record
-- Returns 1, or 0 and nothing changed if the queue does not exist
-- Cost  O(1). Called by the operator, every few seconds at most.
local STATS, TOPOLOGY = unpack(KEYS)
if redis.call('EXISTS', TOPOLOGY) == 0 then return 0 end
redis.call('HDEL', STATS, 'scaling') -- a removal first: at maxmemory the HSET alone would be refused
redis.call('HSET', STATS, 'scaling', ARGV[1])
return 1
