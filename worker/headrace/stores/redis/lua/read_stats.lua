-- READ_STATS: the statistics of a queue, with the time.
--
-- KEYS  1 stats hash
-- ARGV  none
-- Returns {now ms, [field, value, ...]}
-- Cost  O(1): some twenty fields. Called by the operator, leaders and the command line.
local STATS = KEYS[1]
--@include clock

return {server_now(redis.call('HGET', STATS, 'at')), redis.call('HGETALL', STATS)}
