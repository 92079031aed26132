-- DEAD_ADOPT: copy dead letters of an older version, which are removed there afterwards.
--
-- KEYS  1 meta hash, 2 dead zset, 3 dead letters hash
-- ARGV  1 incarnation of the queue, 2 msgpack [letter, died ms, record, changes, ...], at most 1,000 letters
-- Returns 1; 0 and nothing was changed if the partition is not active (a closed one may be deleted with what it holds)
-- Cost  O(letters log n). Called by headrace.lifecycle.complete.
local META, DEAD, LETTERS = KEYS[1], KEYS[2], KEYS[3]
--@include incarnation

local meta = redis.call('HMGET', META, 's', 'i')
if meta[1] ~= 'A' or compared(meta[2], ARGV[1]) ~= 0 then return 0 end
local batch = cmsgpack.unpack(ARGV[2])
for i = 1, #batch, 4 do
  local letter, died, record, changes = unpack(batch, i, i + 3)
  redis.call('HSET', LETTERS, letter, cmsgpack.pack({record, changes}))
  redis.call('ZADD', DEAD, died, letter)
end
return 1
