-- PROBE: mark a partition of an older version and tell which jobs are known there.
--
-- KEYS  1 meta hash, 2 jobs hash, 3 moving hash, 4 seen zset
-- ARGV  1 the topology (successor), 2 incarnation of the queue, 3 msgpack [key, nonce or '', ...]
-- Returns an array of 0/1: the id is live or moving here, or the call of that nonce was applied here
-- Cost  O(jobs). Called by producers before they enqueue an id that may be in an older version.
local META, JOBS, MOVING, SEEN = unpack(KEYS)
--@include clock
--@include incarnation
--@include mark

mark(redis.call('HMGET', META, 's', 't', 'i'), ARGV[1], ARGV[2])
local batch = cmsgpack.unpack(ARGV[3])
local known = {}
for i = 1, #batch, 2 do
  local id = string.sub(batch[i], 2)
  local found = redis.call('HEXISTS', JOBS, id) == 1 or redis.call('HEXISTS', MOVING, id) == 1
    or (batch[i + 1] ~= '' and redis.call('ZSCORE', SEEN, batch[i + 1]))
  known[#known + 1] = found and 1 or 0
end
return known
