-- LOCK: compare-and-set of the lock of last resort by its version.
--
-- KEYS  1 lock hash: rv (version), holder, term, duration (s), seq, acquired, epoch; perhaps 2 the key without which it
--       passes, see lib/passing.lua
-- ARGV  1 expected version ('' : there is none), 2 holder, 3 term, 4 duration, 5 seq, 6 acquired, 7 epoch
-- Returns the new version, or 0 and nothing changed
-- Cost  O(1). Called by the elector.
local LOCK, OWNER = KEYS[1], KEYS[2]
--@include passing
local version = redis.call('HGET', LOCK, 'rv')
if (version or '') ~= ARGV[1] then return 0 end
local t = redis.call('TIME')
-- Not a counter: a lock that was lost and made anew must not come back to a version that somebody remembers.
local following = string.format('%d.%06d', t[1], t[2])
if following == version then return 0 end
redis.call('HDEL', LOCK, 'rv') -- a removal first: at maxmemory there must be a leader, too
redis.call('HSET', LOCK, 'rv', following, 'holder', ARGV[2], 'term', ARGV[3], 'duration', ARGV[4], 'seq', ARGV[5],
  'acquired', ARGV[6], 'epoch', ARGV[7])
passing(LOCK)
return following
