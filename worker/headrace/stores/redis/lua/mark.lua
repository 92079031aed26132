-- MARK: an active or absent partition of an older version takes no more jobs and knows its successor.
--
-- KEYS  1 meta hash
-- ARGV  1 the topology (successor), 2 incarnation of the queue
-- Returns the state afterwards: D | C | T, or A if the partition belongs to a later queue of this name
-- Cost  O(1). Called by promoters, by the operator, and (within PROBE) by producers; repeating it changes nothing.
local META = KEYS[1]
--@include clock
--@include incarnation
--@include mark

return mark(redis.call('HMGET', META, 's', 't', 'i'), ARGV[1], ARGV[2])
