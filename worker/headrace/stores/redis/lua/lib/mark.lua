-- mark(facts, successor): an active or absent partition becomes draining; other states are untouched.
-- `facts` = state, t. The epoch stays: it says which settings the partition has. Returns the state afterwards.
local function mark(facts, successor)
  if facts[1] and facts[1] ~= 'A' then return facts[1] end
  redis.call('HSET', META, 's', 'D', 'succ', successor, 'marked', server_now(facts[2]))
  return 'D'
end
