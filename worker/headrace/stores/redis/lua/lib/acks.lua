-- settle_acks(packed): removes finished jobs; returns how many, and which were refused.
local function settle_acks(packed)
  if packed == '' then return 0, {} end
  local ids, keys, _, refused = held(cmsgpack.unpack(packed), 2)
  if #ids > 0 then
    redis.call('ZREM', LEASED, unpack(keys))
    redis.call('HDEL', LEASE, unpack(ids))
    redis.call('HDEL', JOBS, unpack(ids))
    if redis.call('EXISTS', MUT) == 1 then redis.call('HDEL', MUT, unpack(ids)) end
  end
  return #ids, refused
end
