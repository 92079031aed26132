-- mark(facts, successor, incarnation): an active or absent partition becomes draining; other states are untouched, and
-- so is a partition of a later queue of this name. What an earlier one has left counts as absent.
-- `facts` = state, t, i. The epoch stays: it says which settings the partition has. Returns the state afterwards.
local function mark(facts, successor, incarnation)
  local age = compared(facts[3], incarnation)
  if facts[1] and (age > 0 or (age == 0 and facts[1] ~= 'A')) then return facts[1] end
  -- A removal first: at maxmemory the HSET alone would be refused.
  if age < 0 then redis.call('UNLINK', META) else redis.call('HDEL', META, '') end
  redis.call('HSET', META, 's', 'D', 'succ', successor, 'marked', server_now(facts[2]))
  incarnate(incarnation)
  return 'D'
end
