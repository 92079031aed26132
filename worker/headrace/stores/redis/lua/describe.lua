-- DESCRIBE: one live job, with all that is known of it.
--
-- KEYS  1 jobs hash, 2 lease hash, 3 leased zset, 4 scheduled zset, 5 retry zset, 6 park zset, 7 moving hash, 8 mut hash
-- ARGV  1 stored id
-- Returns {state, at or -1, token or '', record, changes or ''}; {} if it is not live here
-- Cost  O(log n). Called by the command line.
local JOBS, LEASE, LEASED, SCHEDULED, RETRY, PARK, MOVING, MUT = unpack(KEYS)
--@include live

local found = live(ARGV[1])
if not found then return {} end
found[4] = redis.call('HGET', JOBS, ARGV[1])
found[5] = redis.call('HGET', MUT, ARGV[1]) or ''
return found
