-- FORGET_FINISHED: remove batches of finished jobs of a partition that ends, which were adopted elsewhere.
--
-- KEYS  1 done stream
-- ARGV  entries, at most 1,000
-- Returns how many there were
-- Cost  O(entries). Called by headrace.finished.
return redis.call('XDEL', KEYS[1], unpack(ARGV))
