-- BURY_QUEUE: the last step of deleting a queue, whose partitions are tombstones by then. What it was is left as its grave.
--
-- KEYS  1 topology string, 2 grave string, 3 every other key of the queue ...
-- ARGV  1 the topology (JSON), 2 the grave (JSON), 3 its life in ms
-- Returns 1, or 0 and nothing changed if another topology is stored
-- Cost  O(1): keys are unlinked. Called by headrace.deletion.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('UNLINK', KEYS[1], unpack(KEYS, 3, #KEYS))
redis.call('SET', KEYS[2], ARGV[2], 'PX', ARGV[3])
return 1
