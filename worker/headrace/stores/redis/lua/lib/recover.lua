-- recover_expired(now): at most 100 jobs whose lease ended become ready again; returns how many.
local function recover_expired(now)
  local keys = redis.call('ZRANGEBYSCORE', LEASED, '-inf', now, 'LIMIT', 0, 100)
  if #keys == 0 then return 0 end
  local ids = {}
  for n, key in ipairs(keys) do ids[n] = string.sub(key, 2) end
  local tokens = redis.call('HMGET', LEASE, unpack(ids))
  local facts = redis.call('HMGET', MUT, unpack(ids))
  redis.call('ZREM', LEASED, unpack(keys))
  redis.call('HDEL', LEASE, unpack(ids))
  local updates = {}
  for n, id in ipairs(ids) do
    updates[#updates + 1] = id
    updates[#updates + 1] = changed(facts[n], 0, 1, 'lease expired', now, tokens[n] or '', '')
  end
  redis.call('HSET', MUT, unpack(updates))
  push_ready(keys)
  return #keys
end
