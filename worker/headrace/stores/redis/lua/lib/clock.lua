-- server_now(last): server time in ms, never behind `last`, the newest time this partition has seen ('t' in its meta):
-- the clock of a promoted replica may be behind.
local function server_now(last)
  local t = redis.call('TIME')
  local now = t[1] * 1000 + math.floor(t[2] / 1000)
  last = tonumber(last or 0) or 0
  if now < last then return last end
  return now
end
