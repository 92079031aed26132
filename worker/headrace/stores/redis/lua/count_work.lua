-- COUNT_WORK: add what a worker has counted to the statistics of its queue.
--
-- KEYS  1 stats hash, 2 topology string
-- ARGV  counter, number, ...
-- Returns 1, or 0 and nothing changed if the queue does not exist
-- Cost  O(counters). Called by workers, once a second at most.
local STATS, TOPOLOGY = unpack(KEYS)
if redis.call('EXISTS', TOPOLOGY) == 0 then return 0 end
redis.call('HDEL', STATS, '') -- a removal first: at maxmemory the HINCRBY alone would be refused
for i = 1, #ARGV, 2 do redis.call('HINCRBY', STATS, ARGV[i], ARGV[i + 1]) end
return 1
