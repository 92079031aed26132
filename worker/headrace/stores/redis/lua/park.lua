-- PARK: leased jobs of a type that the worker does not know wait by type until a worker that knows it asks for them.
--
-- KEYS  1 meta hash, 2-4 ready lists of lanes 0-2, 5 leased zset, 6 lease hash, 7 park zset
--       standalone form also: 8 hot zset, 9 due zset, 10 parked zset of the queue
-- ARGV  1 label "version:partition", 2 msgpack [key, token, type, ...], at most 1,000
-- Returns {refused elements (indexes from 0), jobs that a limit held back are ready (0/1), now ms}
-- Cost  O(jobs log n). Called by workers.
local META, R0, R1, R2, LEASED, LEASE, PARK = unpack(KEYS, 1, 7)
local HOT, DUE, PARKED = KEYS[8], KEYS[9], KEYS[10]
local LABEL = ARGV[1]
--@include clock
--@include leased
--@include hints
--@include reopen

local batch = cmsgpack.unpack(ARGV[2])
local ids, keys, positions, refused = held(batch, 3)
if #ids == 0 then return {refused, 0, 0} end
local now = server_now(redis.call('HGET', META, 't'))
redis.call('ZREM', LEASED, unpack(keys))
redis.call('HDEL', LEASE, unpack(ids))
local parked = {}
for n, key in ipairs(keys) do
  parked[n * 2 - 1] = 0
  parked[n * 2] = batch[positions[n] + 2] .. '\0' .. key -- equal scores: ordered by type, then key
end
redis.call('ZADD', PARK, unpack(parked))
if PARKED then redis.call('ZADD', PARKED, now, LABEL) end
return {refused, reopen(#ids), now}
