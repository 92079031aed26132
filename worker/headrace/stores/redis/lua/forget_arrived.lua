-- FORGET_ARRIVED: the partition where jobs came from has let them go, so they cannot be adopted a second time.
--
-- KEYS  1 meta hash, 2 arrived hash
-- ARGV  1 epoch, 2 nonce, 3 incarnation of the leader, 4 label of the partition where they came from,
--       5 msgpack [id, ...], at most 100
-- Returns {'ok'} or {'fenced', epoch of a newer leader} and nothing was changed
-- Cost  O(jobs). Called by headrace.migration.
local META, ARRIVED = KEYS[1], KEYS[2]
--@include incarnation
--@include fence

local newer = newer_leader(ARGV[1], ARGV[2], ARGV[3])
if newer then return {'fenced', newer} end
for _, id in ipairs(cmsgpack.unpack(ARGV[5])) do
  if redis.call('HGET', ARRIVED, id) == ARGV[4] then redis.call('HDEL', ARRIVED, id) end
end
return {'ok'}
