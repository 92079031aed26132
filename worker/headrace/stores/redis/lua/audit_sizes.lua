-- AUDIT_SIZES: the sizes of a partition's keys at one moment. In a sound partition there are as many records as entries
-- in all indexes together, as many leases as leased jobs, and as many letters as dead ones.
--
-- KEYS  1 meta hash, 2-4 ready lists of lanes 0-2, 5 scheduled zset, 6 retry zset, 7 leased zset, 8 lease hash,
--       9 jobs hash, 10 mut hash, 11 park zset, 12 moving hash, 13 arrived hash, 14 dead zset, 15 dead letters hash,
--       16 suspects list, 17 alone list; standalone form also: 18 hot zset, 19 due zset
-- ARGV  1 label "version:partition"
-- Returns {state, incarnation, hint that is missing (0/1; always 0 in the Cluster form), now ms, then the sizes: jobs, mut,
--          lease, letters, r0, r1, r2, suspects, alone, scheduled, retry, leased, park, moving, arrived, dead}
-- Cost  O(1). Called by the audit.
local META, R0, R1, R2, SCHEDULED, RETRY, LEASED, LEASE, JOBS, MUT, PARK, MOVING, ARRIVED, DEAD = unpack(KEYS, 1, 14)
local LETTERS, SUSPECTS, ALONE = KEYS[15], KEYS[16], KEYS[17]
local HOT, DUE = KEYS[18], KEYS[19]
--@include clock
--@include unhinted

local meta = redis.call('HMGET', META, 's', 'i', 't')
local sizes = {meta[1] or 'absent', tonumber(meta[2] or 1) or 1, unhinted(ARGV[1]), server_now(meta[3])}
for _, hash in ipairs({JOBS, MUT, LEASE, LETTERS}) do sizes[#sizes + 1] = redis.call('HLEN', hash) end
for _, list in ipairs({R0, R1, R2, SUSPECTS, ALONE}) do sizes[#sizes + 1] = redis.call('LLEN', list) end
for _, zset in ipairs({SCHEDULED, RETRY, LEASED, PARK}) do sizes[#sizes + 1] = redis.call('ZCARD', zset) end
for _, hash in ipairs({MOVING, ARRIVED}) do sizes[#sizes + 1] = redis.call('HLEN', hash) end
sizes[#sizes + 1] = redis.call('ZCARD', DEAD)
return sizes
