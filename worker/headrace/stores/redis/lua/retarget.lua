-- RETARGET: jobs that are set aside move to a newer version than they were to.
--
-- KEYS  1 meta hash, 2 moving hash
-- ARGV  1 epoch, 2 nonce, 3 incarnation of the leader, 4 version that they move to, 5 msgpack [id, ...], at most 100
-- Returns {'ok'} or {'fenced', epoch of a newer leader} and nothing was changed
-- Cost  O(jobs). Called by headrace.migration, for jobs that their version does not take any more.
local META, MOVING = KEYS[1], KEYS[2]
--@include incarnation
--@include fence

local newer = newer_leader(ARGV[1], ARGV[2], ARGV[3])
if newer then return {'fenced', newer} end
local to = tonumber(ARGV[4])
for _, id in ipairs(cmsgpack.unpack(ARGV[5])) do
  local packed = redis.call('HGET', MOVING, id)
  local facts = packed and cmsgpack.unpack(packed)
  if facts and facts[1] < to then
    facts[1] = to
    redis.call('HSET', MOVING, id, cmsgpack.pack(facts))
  end
end
return {'ok'}
