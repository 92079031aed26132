-- READ_SCHEDULES: what is noted of the schedules of a queue, and the time.
--
-- KEYS  1 schedules hash
-- ARGV  none
-- Returns {now in ms, name, mark, ...}; a mark: time in ms, a space, the rule
-- Cost  O(schedules), which are declared in code. Called by the leader when one is due, and by the command line.
local SCHEDULES = KEYS[1]
--@include clock

local reply = {server_now()}
local flat = redis.call('HGETALL', SCHEDULES)
for i = 1, #flat, 2 do
  if string.sub(flat[i], 1, 1) ~= ':' then
    reply[#reply + 1] = flat[i]
    reply[#reply + 1] = flat[i + 1]
  end
end
return reply
