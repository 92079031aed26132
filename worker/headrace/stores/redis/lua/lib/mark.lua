-- mark(facts, epoch, successor): an active partition becomes draining; other states are untouched. `facts` = state, t.
-- Returns the state afterwards.
local function mark(facts, epoch, successor)
  if facts[1] ~= 'A' then return facts[1] or 'absent' end
  redis.call('HSET', META, 's', 'D', 'e', epoch, 'succ', successor, 'marked', server_now(facts[2]))
  return 'D'
end
