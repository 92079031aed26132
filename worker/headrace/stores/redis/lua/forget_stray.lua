-- FORGET_STRAY: remove the hints of a partition that the topology does not list, as the audit has found.
--
-- KEYS  1 hot zset, 2 due zset, 3 parked zset, 4 topology string
-- ARGV  1 label, 2 the topology that does not list it (JSON)
-- Returns how many there were; 0 and nothing changed if the topology is another one
-- Cost  O(log n). Called by the audit.
local HOT, DUE, PARKED, TOPOLOGY = unpack(KEYS)

if redis.call('GET', TOPOLOGY) ~= ARGV[2] then return 0 end
return redis.call('ZREM', HOT, ARGV[1]) + redis.call('ZREM', DUE, ARGV[1]) + redis.call('ZREM', PARKED, ARGV[1])
