-- DEAD_ADOPT: copy dead letters of an older version, which are removed there afterwards. Beyond the limit the oldest go.
-- One whose id has died here, too, in the same millisecond becomes a letter of the next one; copied again it is the same.
--
-- KEYS  1 meta hash, 2 dead zset, 3 dead letters hash
-- ARGV  1 incarnation of the queue, 2 msgpack [letter, died ms, record, changes, ...], at most 250 letters,
--       perhaps 3 epoch, 4 nonce, 5 incarnation of the leader
-- Returns 1; 0 and nothing was changed if the partition is not active (a closed one may be deleted with what it holds)
--         {'fenced', epoch of a newer leader} and nothing was changed
-- Cost  O(letters log n). Called by headrace.lifecycle.complete.
local META, DEAD, LETTERS = KEYS[1], KEYS[2], KEYS[3]
--@include incarnation
--@include fence
--@include readable
--@include trim_dead

if ARGV[3] then
  local newer = newer_leader(ARGV[3], ARGV[4], ARGV[5])
  if newer then return {'fenced', newer} end
end
local meta = redis.call('HMGET', META, 's', 'i', 'deadmax')
if meta[1] ~= 'A' or compared(meta[2], ARGV[1]) ~= 0 then return 0 end
local batch = cmsgpack.unpack(ARGV[2])
for i = 1, #batch, 4 do
  local letter, died, record, changes = unpack(batch, i, i + 3)
  local id = string.match(letter, '^(.*)@%d+$')
  local known = redis.call('HGET', LETTERS, letter)
  -- One that cannot be read is another one. An id may hold zero bytes, at which %s would end it.
  while known and not (readable_letter(known) and cmsgpack.unpack(known)[1] == record) do
    died = died + 1
    letter = id .. '@' .. string.format('%d', died)
    known = redis.call('HGET', LETTERS, letter)
  end
  redis.call('HSET', LETTERS, letter, cmsgpack.pack({record, changes}))
  redis.call('ZADD', DEAD, died, letter)
end
if #batch > 0 then trim_dead(meta[3], #batch / 4 + 100) end
return 1
