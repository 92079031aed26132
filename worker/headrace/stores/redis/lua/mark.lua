-- MARK: an active or absent partition of an older version takes no more jobs and knows its successor.
--
-- KEYS  1 meta hash
-- ARGV  1 the topology (successor)
-- Returns the state afterwards: D | C | T
-- Cost  O(1). Called by promoters, by the operator, and (within PROBE) by producers; repeating it changes nothing.
local META = KEYS[1]
--@include clock
--@include mark

return mark(redis.call('HMGET', META, 's', 't'), ARGV[1])
