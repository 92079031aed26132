-- CLAIM: ask to lead. Accepted under a new epoch if nobody leads, or somebody of lower rank, or of the same rank with an
-- older term, or the same process under another nonce. A nonce that leads already is prolonged and keeps its epoch.
--
-- KEYS  1 fence hash: epoch, nonce, holder, rank, backend, term, exp (ms), since (ms), hw:<backend> (highest term ever
--       claimed through it), perhaps 2 the key without which it passes, see lib/passing.lua
-- ARGV  1 holder, 2 nonce, 3 backend, 4 rank, 5 term, 6 time to live in ms, 7 epoch that the next one must be above
-- Returns {'ok', epoch} | {'held', rank, ms left} | {'stale', highest term}; the latter two change nothing
-- Cost  O(1). Called by the elector.
local FENCE, OWNER = KEYS[1], KEYS[2]
--@include passing
local holder, nonce, backend, rank, term = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])
local high = 'hw:' .. backend
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local expires = string.format('%.0f', now + tonumber(ARGV[6]))
local old = redis.call('HMGET', FENCE, 'epoch', 'nonce', 'holder', 'rank', 'backend', 'term', 'exp', high)
local epoch = tonumber(old[1] or 0)
if old[2] == nonce then
  redis.call('HDEL', FENCE, 'exp') -- a removal first: at maxmemory there must be a leader, too
  redis.call('HSET', FENCE, 'exp', expires)
  passing(FENCE)
  return {'ok', epoch}
end
if term <= tonumber(old[8] or 0) then return {'stale', tonumber(old[8])} end
local left = tonumber(old[7] or 0) - now
if left > 0 and old[3] ~= holder then
  local ruling = tonumber(old[4])
  local newer = old[5] == backend and term > tonumber(old[6])
  if rank < ruling or (rank == ruling and not newer) then return {'held', ruling, left} end
end
epoch = math.max(epoch, tonumber(ARGV[7])) + 1
redis.call('HDEL', FENCE, 'exp')
redis.call('HSET', FENCE, 'epoch', epoch, 'nonce', nonce, 'holder', holder, 'rank', rank, 'backend', backend,
  'term', term, 'exp', expires, 'since', string.format('%.0f', now), high, term)
passing(FENCE)
return {'ok', epoch}
