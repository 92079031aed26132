-- ACK: remove finished jobs that are leased under their token.
--
-- KEYS  1 meta hash, 2 leased zset, 3 lease hash, 4 jobs hash, 5 mut hash
-- ARGV  1 msgpack [key, token, ...], at most 1,000
-- Returns the refused elements (indexes from 0)
-- Cost  O(acks). Called by workers when no claim of the partition is near; claims acknowledge in passing.
local META, LEASED, LEASE, JOBS, MUT = unpack(KEYS)
--@include leased
--@include acks

local finished, refused = settle_acks(ARGV[1])
if finished > 0 then redis.call('HINCRBY', META, 'done', finished) end
return refused
