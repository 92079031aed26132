-- give_up(kind, member, reason, now, entries): a job that waits for a type becomes a dead letter; `entries`: 'hist' of the
-- meta.
local function give_up(kind, member, reason, now, entries)
  redis.call('ZREM', PARK, member)
  local id = string.sub(member, #kind + 3) -- after the type, a zero byte and the lane
  local event = {cleared = true, status = 'unknown type', now = now, token = '', error = reason}
  local facts = changed(redis.call('HGET', MUT, id), event, entries)
  bury(id, facts, now)
end
