-- FORGET: a partition is gone; so are its hints. Cluster form only.
--
-- KEYS  1 hot zset, 2 due zset, 3 parked zset
-- ARGV  1 label "version:partition"
-- Returns nothing
-- Cost  O(log n). Called after a partition was removed, or found to be gone.
redis.call('ZREM', KEYS[1], ARGV[1])
redis.call('ZREM', KEYS[2], ARGV[1])
redis.call('ZREM', KEYS[3], ARGV[1])
