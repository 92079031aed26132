-- alarm(now, worker): ms until the queue's next due time if `worker` holds the alarm after this call, else -1.
-- It is taken if its holder passed its time, or if an earlier due time appeared.
local function alarm(now, worker)
  local head = redis.call('ZRANGE', DUE, '0', '0', 'WITHSCORES')
  if not head[2] then return -1 end
  local at = tonumber(head[2])
  local held = redis.call('HMGET', ALARM, 't', 'w')
  local set_for = tonumber(held[1]) or 0
  if held[2] == worker or set_for < now or at < set_for - 1 then
    redis.call('HSET', ALARM, 't', head[2], 'w', worker)
    return math.max(0, at - now)
  end
  return -1
end
