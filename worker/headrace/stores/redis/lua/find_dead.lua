-- FIND_DEAD: the newest dead letter of each of some ids, looked for from the newest to the oldest.
--
-- KEYS  1 dead zset, 2 dead letters hash
-- ARGV  1 look at letters that died then (ms) or before, or '', 2 leave out so many of them that died then, 3 look at
--       letters that died then (ms) or later, or '', then stored ids, at most 200
-- Returns {died ms and number to leave out with which the next call goes on, or '', 0 at the end,
--          [letter, died ms, record, changes, ...]}; it ends when each id was met, or they fill 512 KiB
-- Cost  O(letters looked at): at most 1,000. Called for jobs that are not live.
local DEAD, LETTERS = KEYS[1], KEYS[2]
--@include readable

local wanted, left = {}, #ARGV - 3
for i = 4, #ARGV do wanted[ARGV[i]] = true end
local from, skip, to = ARGV[1] == '' and '+inf' or ARGV[1], tonumber(ARGV[2]), ARGV[3] == '' and '-inf' or ARGV[3]
local page = redis.call('ZREVRANGEBYSCORE', DEAD, from, to, 'WITHSCORES', 'LIMIT', skip, 1000)
local found, size = {}, 0
for i = 1, #page, 2 do
  if left == 0 then return {'', 0, found} end
  if size > 524288 then return {from, skip, found} end
  local id = string.match(page[i], '^(.*)@%d+$')
  if wanted[id] then
    wanted[id] = nil
    left = left - 1
    local packed = redis.call('HGET', LETTERS, page[i])
    local letter = packed and readable_letter(packed) and cmsgpack.unpack(packed) or {'', ''}
    size = size + (packed and #packed or 0)
    for _, part in ipairs({page[i], page[i + 1], letter[1], letter[2]}) do found[#found + 1] = part end
  end
  if page[i + 1] == from then skip = skip + 1 else from, skip = page[i + 1], 1 end
end
if #page < 2000 then return {'', 0, found} end
return {from, skip, found}
