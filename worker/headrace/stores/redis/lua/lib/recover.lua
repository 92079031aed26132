-- recover_expired(now, limit): at most 100 jobs whose lease ended are taken back; returns how many, and how many died.
--
-- Whoever held them may have been killed by one of them. A first loss makes a job suspect, uncharged; suspects wait in a
-- list of their own, of which a worker runs one at a time. Only a suspect that is lost again, having run as the only
-- suspect there, is charged with a crash; the `limit`-th makes it a dead letter. So a job that kills its process is found
-- without charging its neighbours.
local function recover_expired(now, limit)
  local keys = redis.call('ZRANGEBYSCORE', LEASED, '-inf', now, 'LIMIT', 0, 100)
  if #keys == 0 then return 0, 0 end
  local ids = {}
  for n, key in ipairs(keys) do ids[n] = string.sub(key, 2) end
  local tokens = redis.call('HMGET', LEASE, unpack(ids))
  local facts = redis.call('HMGET', MUT, unpack(ids))
  redis.call('ZREM', LEASED, unpack(keys))
  redis.call('HDEL', LEASE, unpack(ids))
  redis.call('HINCRBY', META, 'exp', #keys)
  local died = 0
  for n, id in ipairs(ids) do
    local event = {expiries = 1, suspect = 1, status = 'lease expired', now = now, token = tokens[n] or '', error = ''}
    local after, was_suspect, crashes = changed(facts[n], event)
    if was_suspect and crashes >= limit then
      event.expiries, event.status = nil, 'worker lost'
      event.error = 'worker lost: its process ended or froze ' .. crashes .. ' times while this job ran'
      bury(id, (changed(after, event)), now)
      died = died + 1
    else
      redis.call('HSET', MUT, id, after)
      redis.call('RPUSH', SUSPECTS, keys[n])
    end
  end
  return #keys, died
end
