-- promote_due(now): at most 500 jobs whose time has come become ready; returns how many.
local function promote_due(now)
  local moved = 0
  for _, waiting in ipairs({RETRY, SCHEDULED}) do
    local keys = redis.call('ZRANGEBYSCORE', waiting, '-inf', now, 'LIMIT', '0', 500 - moved)
    if #keys > 0 then
      redis.call('ZREM', waiting, unpack(keys))
      push_ready(keys)
      moved = moved + #keys
    end
    if moved >= 500 then break end
  end
  if moved > 0 then redis.call('HINCRBY', META, 'rdy', moved) end
  return moved
end
