-- WRITE_TOPOLOGY: compare-and-set of the queue's topology by its epoch.
--
-- KEYS  1 topology string, 2 grave string: what a deleted queue of the name has left
-- ARGV  1 expected epoch (0: there is none), 2 the topology (JSON)
-- Returns 1, or 0 and nothing changed
-- Cost  O(size of the topology). Called through headrace.lifecycle and headrace.deletion only.
local stored = redis.call('GET', KEYS[1]) or redis.call('GET', KEYS[2])
local epoch = stored and cjson.decode(stored).epoch or 0
if epoch ~= tonumber(ARGV[1]) then return 0 end
redis.call('UNLINK', KEYS[2]) -- a removal first: at maxmemory the SET alone would be refused
redis.call('SET', KEYS[1], ARGV[2])
return 1
