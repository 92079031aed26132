-- PARK: leased jobs of a type that the worker does not know wait by type until a worker that knows it asks for them.
--
-- KEYS  1 meta hash, 2-4 ready lists of lanes 0-2, 5 leased zset, 6 lease hash, 7 park zset, 8 mut hash
--       standalone form also: 9 hot zset, 10 due zset, 11 parked zset of the queue
-- ARGV  1 label "version:partition", 2 msgpack [key, token, type, ...], at most 1,000
-- Returns {refused elements (indexes from 0), jobs that a limit held back are ready (0/1), now ms or 0 if none was parked,
--          elements that were dealt with, from the first: as many as lib/fitting.lua says; the caller sends the others again}
-- Cost  O(jobs log n + bytes of histories). Called by workers.
local META, R0, R1, R2, LEASED, LEASE, PARK, MUT = unpack(KEYS, 1, 8)
local HOT, DUE, PARKED = KEYS[9], KEYS[10], KEYS[11]
local LABEL = ARGV[1]
--@include clock
--@include changes
--@include leased
--@include fitting
--@include first_part
--@include hints
--@include reopen

local batch = cmsgpack.unpack(ARGV[2])
local ids, keys, positions, refused = held(batch, 3)
if #ids == 0 then return {refused, 0, 0, #batch / 3} end
local done = first_part(fitting(ids, 1000), 3, batch, ids, keys, positions, refused)
local now = server_now(redis.call('HGET', META, 't'))
redis.call('ZREM', LEASED, unpack(keys))
redis.call('HDEL', LEASE, unpack(ids))
local parked = {}
for n, key in ipairs(keys) do
  parked[n * 2 - 1] = 0
  parked[n * 2] = batch[positions[n] + 2] .. '\0' .. key -- equal scores: ordered by type, then key
end
redis.call('ZADD', PARK, unpack(parked))
if redis.call('EXISTS', MUT) == 1 then
  -- It was not run, and comes back through the ready lanes, so it is no longer a suspect.
  local entries = redis.call('HGET', META, 'hist')
  for n, packed in ipairs(redis.call('HMGET', MUT, unpack(ids))) do
    if packed and facts_of(packed)[6] > 0 then
      local event = {cleared = true, status = 'parked', now = now, token = batch[positions[n] + 1], error = ''}
      redis.call('HSET', MUT, ids[n], (changed(packed, event, entries)))
    end
  end
end
if PARKED then redis.call('ZADD', PARKED, now, LABEL) end
return {refused, reopen(#ids), now, done}
