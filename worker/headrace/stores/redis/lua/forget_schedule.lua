-- FORGET_SCHEDULE: forget a schedule that nobody declares any more.
--
-- KEYS  1 schedules hash
-- ARGV  1 name, 2 the mark that was seen
-- Returns 1; 0 and nothing was changed if another one is noted, or none
-- Cost  O(1). Called by the command line.
local SCHEDULES = KEYS[1]
local NAME, SEEN = ARGV[1], ARGV[2]
if redis.call('HGET', SCHEDULES, NAME) ~= SEEN then return 0 end
return redis.call('HDEL', SCHEDULES, NAME)
