-- trim_dead(limit, most): at most `most` dead letters beyond the limit ('deadmax' of the meta; '' or nil: none) are dropped,
-- oldest first, and counted; returns how many.
local function trim_dead(limit, most)
  local over = limit and limit ~= '' and redis.call('ZCARD', DEAD) - tonumber(limit) or 0
  if over <= 0 then return 0 end
  local oldest = redis.call('ZRANGE', DEAD, 0, math.min(over, most) - 1)
  redis.call('HDEL', LETTERS, unpack(oldest))
  redis.call('ZREM', DEAD, unpack(oldest))
  redis.call('HINCRBY', META, 'drop', #oldest)
  return #oldest
end
