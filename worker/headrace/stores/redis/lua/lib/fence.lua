-- newer_leader(epoch, nonce, incarnation): nil if the partition obeys this leader, from now on; else the epoch of the one that it
-- obeys. Of two with one epoch the first that came counts: after a failover an epoch may be minted again. What does not
-- exist has no fence; a partition of another queue of this name obeys none of this one. Needs lib/incarnation. To be called before anything else is written.
local function newer_leader(epoch, nonce, incarnation)
  local known = redis.call('HMGET', META, 's', 'fe', 'fn', 'i')
  if not known[1] or known[1] == 'T' then return nil end
  local theirs, ours = tonumber(known[2] or 0), tonumber(epoch)
  if compared(known[4], incarnation) ~= 0 then return theirs end
  if ours < theirs or (ours == theirs and known[3] ~= nonce) then return theirs end
  if ours > theirs then
    redis.call('HDEL', META, 'fn') -- a removal first: at maxmemory a new leader is obeyed, too
    redis.call('HSET', META, 'fe', epoch, 'fn', nonce)
  end
  return nil
end
