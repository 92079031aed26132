-- STILL_ASIDE: which jobs are set aside here.
--
-- KEYS  1 moving hash
-- ARGV  1 msgpack [id, ...], at most 1,000
-- Returns [0/1, ...]
-- Cost  O(jobs). Called by headrace.migration.
local found = {}
for n, id in ipairs(cmsgpack.unpack(ARGV[1])) do found[n] = redis.call('HEXISTS', KEYS[1], id) end
return found
