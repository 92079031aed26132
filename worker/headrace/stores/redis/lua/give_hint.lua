-- GIVE_HINT: a partition is worth a claim; its hint goes to the head, unless there is one.
--
-- KEYS  1 hot zset, 2 topology string, 3 grave string
-- ARGV  1 label "version:partition"
-- Returns nothing; nothing is changed if the queue was deleted
-- Cost  O(log n). Called by workers that took a hint and have no free slot, and by those who look for lost hints.
local HOT, TOPOLOGY, GRAVE = KEYS[1], KEYS[2], KEYS[3]
--@include buried
if buried() then return end

redis.call('ZREM', HOT, '') -- a removal first: at maxmemory a ZADD alone would be refused
redis.call('ZADD', HOT, 'NX', 0, ARGV[1])
