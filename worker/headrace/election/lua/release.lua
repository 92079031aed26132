-- RELEASE: the leader has stopped its work; anybody may claim at once, and a forgotten script of it is refused.
-- Epoch and highest terms stay.
--
-- KEYS  1 fence hash
-- ARGV  1 nonce
-- Returns 1, or 0 and nothing changed: another nonce leads, or none
-- Cost  O(1). Called by the elector.
local FENCE = KEYS[1]
if ARGV[1] == '' or redis.call('HGET', FENCE, 'nonce') ~= ARGV[1] then return 0 end
redis.call('HDEL', FENCE, 'exp') -- a removal first: at maxmemory a leader must be able to go, too
redis.call('HSET', FENCE, 'exp', '0', 'nonce', '')
return 1
