-- NOTE_PARKED: a partition holds parked jobs: in the Cluster form, after PARK and ADOPT, or where that was lost.
--
-- KEYS  1 parked zset, 2 topology string, 3 grave string
-- ARGV  1 label "version:partition", 2 time (ms) when one was parked last, 3 unless it is noted (0/1)
-- Returns nothing; nothing is changed if the queue was deleted
-- Cost  O(log n). Called by workers and by the leader.
local PARKED, TOPOLOGY, GRAVE = KEYS[1], KEYS[2], KEYS[3]
--@include buried
if buried() then return end

redis.call('ZREM', PARKED, '') -- a removal first: at maxmemory a ZADD alone would be refused
if ARGV[3] == '1' then redis.call('ZADD', PARKED, 'NX', ARGV[2], ARGV[1]) else redis.call('ZADD', PARKED, ARGV[2], ARGV[1]) end
