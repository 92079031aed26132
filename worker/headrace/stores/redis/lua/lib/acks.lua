-- settle_acks(packed): removes finished jobs; returns how many, and which were refused. A job that is named twice is
-- settled by the first. Needs lib/leased.
local function settle_acks(packed)
  local batch = cmsgpack.unpack(packed)
  local ids, keys, refused = {}, {}, {}
  for i = 1, #batch, 2 do
    local n = (i + 1) / 2
    keys[n], ids[n] = batch[i], string.sub(batch[i], 2)
  end
  if #ids == 0 then return 0, refused end
  local tokens = redis.call('HMGET', LEASE, unpack(ids))
  local told = #ids
  for n = 1, told do
    if tokens[n] ~= batch[n * 2] then
      local held_ids, held_keys, _, others = held(batch, 2)
      ids, keys, refused = held_ids, held_keys, others
      break
    end
  end
  if #ids == 0 then return 0, refused end
  if redis.call('ZREM', LEASED, unpack(keys)) < #keys and #refused == 0 then
    local taken = {}
    for n, id in ipairs(ids) do
      if taken[id] then refused[#refused + 1] = n - 1 end
      taken[id] = true
    end
  end
  redis.call('HDEL', LEASE, unpack(ids))
  redis.call('HDEL', JOBS, unpack(ids))
  if redis.call('EXISTS', MUT) == 1 then redis.call('HDEL', MUT, unpack(ids)) end
  return told - #refused, refused
end
