-- READ: the fence as it is.
--
-- KEYS  1 fence hash
-- ARGV  none
-- Returns {epoch, holder, backend, rank, ms left, since, now}
-- Cost  O(1). Called by the elector before it takes a lock, and by those who show who leads.
local FENCE = KEYS[1]
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local f = redis.call('HMGET', FENCE, 'epoch', 'holder', 'backend', 'rank', 'exp', 'since')
local left = tonumber(f[5] or 0) - now
return {tonumber(f[1] or 0), f[2] or '', f[3] or '', tonumber(f[4] or 0), left > 0 and left or 0, tonumber(f[6] or 0), now}
