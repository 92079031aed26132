-- fenced(FENCE, epoch, nonce, ttl): false if the token rules, whose claim is then prolonged by ttl ms; else the epoch
-- that rules. A beat begins with it, with the fence as its first key, and on an epoch answers
-- redis.error_reply('FENCED ' .. epoch) before it has written anything.
local function fenced(FENCE, epoch, nonce, ttl)
  local ruling = redis.call('HMGET', FENCE, 'epoch', 'nonce')
  -- Equality of both: after a failover that forgot a claim the same epoch is minted again, and the nonce differs.
  if ruling[1] ~= epoch or ruling[2] ~= nonce or nonce == '' then return ruling[1] or '0' end
  local t = redis.call('TIME')
  redis.call('HDEL', FENCE, 'exp') -- a removal first: at maxmemory a leader goes on to lead
  redis.call('HSET', FENCE, 'exp', string.format('%.0f', t[1] * 1000 + math.floor(t[2] / 1000) + ttl))
  return false
end
