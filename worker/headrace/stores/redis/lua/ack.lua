-- ACK: remove finished jobs that are leased under their token.
--
-- KEYS  1 meta hash, 2-4 ready lists of lanes 0-2, 5 leased zset, 6 lease hash, 7 jobs hash, 8 mut hash
--       standalone form also: 9 hot zset, 10 due zset
-- ARGV  1 label "version:partition", 2 msgpack [key, token, ...], at most 1,000
-- Returns {refused elements (indexes from 0), jobs that a limit held back are ready (0/1)}
-- Cost  O(acks). Called by workers when no claim of the partition is near; claims acknowledge in passing.
local META, R0, R1, R2, LEASED, LEASE, JOBS, MUT = unpack(KEYS, 1, 8)
local HOT, DUE = KEYS[9], KEYS[10]
local LABEL = ARGV[1]
--@include clock
--@include leased
--@include acks
--@include hints
--@include reopen

local finished, refused = settle_acks(ARGV[2])
if finished > 0 then redis.call('HINCRBY', META, 'done', finished) end
return {refused, reopen(finished)}
