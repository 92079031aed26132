-- WRITE_TOPOLOGY: compare-and-set of the queue's topology. Not its epoch is compared: a failover may hand one out twice.
--
-- KEYS  1 topology string, 2 grave string: what a deleted queue of the name has left
-- ARGV  1 the topology, or grave, that was read ('': there was neither), 2 the topology (JSON)
-- Returns 1, also if that is stored already; or 0 and nothing changed
-- Cost  O(size of the topology). Called through headrace.agreement and headrace.deletion, and by the operator.
local stored = redis.call('GET', KEYS[1]) or redis.call('GET', KEYS[2]) or ''
if stored == ARGV[2] then return 1 end
if stored ~= ARGV[1] then return 0 end
redis.call('UNLINK', KEYS[2]) -- a removal first: at maxmemory the SET alone would be refused
redis.call('SET', KEYS[1], ARGV[2])
return 1
