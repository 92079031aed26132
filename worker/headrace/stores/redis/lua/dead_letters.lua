-- DEAD_LETTERS: one page of the dead letters, oldest first, beginning after one that was seen.
--
-- KEYS  1 dead zset, 2 dead letters hash
-- ARGV  1 letter seen last, or '', 2 its time of death in ms, 3 letters wanted, at most 1,000
-- Returns [letter, died ms, record, changes, ...]
-- Cost  O(page + log n). Called by the command line.
local DEAD, LETTERS = KEYS[1], KEYS[2]
--@include readable

local first = 0
if ARGV[1] ~= '' then
  local rank = redis.call('ZRANK', DEAD, ARGV[1])
  -- If the letter is gone, begin with those of its millisecond: the caller knows which of them it has seen.
  first = rank and rank + 1 or redis.call('ZCOUNT', DEAD, '-inf', '(' .. ARGV[2])
end
local page = redis.call('ZRANGE', DEAD, first, first + math.min(tonumber(ARGV[3]), 1000) - 1, 'WITHSCORES')
local found, size = {}, 0
for i = 1, #page, 2 do
  if size > 524288 then break end -- the next page begins there
  local packed = redis.call('HGET', LETTERS, page[i])
  local letter = packed and readable_letter(packed) and cmsgpack.unpack(packed) or {'', ''}
  size = size + (packed and #packed or 0)
  found[#found + 1] = page[i]
  found[#found + 1] = page[i + 1]
  found[#found + 1] = letter[1]
  found[#found + 1] = letter[2]
end
return found
