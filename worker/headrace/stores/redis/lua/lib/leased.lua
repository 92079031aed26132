-- held(batch, width, repeatable): of a flat batch whose elements begin with key, token, the jobs leased under their
-- token now. A job named again in the batch is refused, since it is settled by then, unless `repeatable`.
-- Returns ids, keys, positions (of their first field in the batch) and the refused elements, counted from 0.
local function held(batch, width, repeatable)
  local asked = {}
  for i = 1, #batch, width do asked[#asked + 1] = string.sub(batch[i], 2) end
  local ids, keys, positions, refused = {}, {}, {}, {}
  if #asked == 0 then return ids, keys, positions, refused end
  local tokens = redis.call('HMGET', LEASE, unpack(asked))
  local taken = {}
  for n, id in ipairs(asked) do
    local i = (n - 1) * width + 1
    if tokens[n] == batch[i + 1] and (repeatable or not taken[id]) then
      taken[id] = true
      ids[#ids + 1] = id
      keys[#keys + 1] = batch[i]
      positions[#positions + 1] = i
    else
      refused[#refused + 1] = n - 1
    end
  end
  return ids, keys, positions, refused
end
