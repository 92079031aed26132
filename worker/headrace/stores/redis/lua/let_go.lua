-- LET_GO: forget jobs that were set aside here and adopted elsewhere.
--
-- KEYS  1 meta hash, 2 jobs hash, 3 mut hash, 4 moving hash
-- ARGV  1 epoch, 2 nonce, 3 incarnation of the leader, 4 msgpack [id, ...], at most 100
-- Returns {'ok'} or {'fenced', epoch of a newer leader} and nothing was changed
-- Cost  O(jobs). Called by headrace.migration.
local META, JOBS, MUT, MOVING = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
--@include incarnation
--@include fence

local newer = newer_leader(ARGV[1], ARGV[2], ARGV[3])
if newer then return {'fenced', newer} end
for _, id in ipairs(cmsgpack.unpack(ARGV[4])) do
  if redis.call('HDEL', MOVING, id) == 1 then
    redis.call('HDEL', JOBS, id)
    redis.call('HDEL', MUT, id)
  end
end
return {'ok'}
