-- recover_expired(now, limit): at most 100 jobs whose lease ended are taken back, as many as fitting() lets; returns how many, and of each {key,
-- token, when the lease ended (ms), whether it died (0/1)}.
--
-- Whoever held them may have been killed by one of them. A first loss makes a job suspect: it waits in a list of its own,
-- from which a worker takes a few at a time, beside other jobs. A suspect that is lost again waits to be run alone, by a
-- worker that runs nothing else; only there a loss is charged, and the `limit`-th makes it a dead letter. So a job that
-- kills its process is found without ever charging another one.
local LEASE_LOST = 'its worker was killed, crashed, froze, or was cut off from Redis'

local function recover_expired(now, limit)
  local expired = redis.call('ZRANGEBYSCORE', LEASED, '-inf', now, 'WITHSCORES', 'LIMIT', '0', '100')
  if #expired == 0 then return 0, {} end
  local ids, keys = {}, {}
  for n = 1, #expired, 2 do ids[#ids + 1] = string.sub(expired[n], 2) end
  -- One that was never lost, and has no history therefore, does not become a dead letter.
  local fit = fitting(ids, 100, function(_, id, history) return history > 0 and letter_weight(id) or 0 end)
  for n = #ids, fit + 1, -1 do ids[n] = nil end
  for n = 1, fit do keys[n] = expired[n * 2 - 1] end
  local tokens = redis.call('HMGET', LEASE, unpack(ids))
  local facts = redis.call('HMGET', MUT, unpack(ids))
  local kept = redis.call('HMGET', META, 'hist', 'deadmax')
  redis.call('ZREM', LEASED, unpack(keys))
  redis.call('HDEL', LEASE, unpack(ids))
  redis.call('HINCRBY', META, 'exp', #keys)
  local WAITING = {SUSPECTS, ALONE}
  local died, lost = 0, {}
  for n, id in ipairs(ids) do
    local token = tokens[n] or ''
    lost[n] = {keys[n], token, tonumber(expired[n * 2]), 0}
    local event = {expiries = 1, status = 'lease expired', now = now, token = token, error = LEASE_LOST}
    local after, suspicion, crashes = changed(facts[n], event, kept[1])
    if suspicion == 2 and crashes >= limit then
      event.expiries, event.status = nil, 'worker lost'
      event.error = 'worker lost: its process ended or froze ' .. crashes .. ' times while it ran only this job'
      bury(id, (changed(after, event, kept[1])), now)
      lost[n][4] = 1
      died = died + 1
    else
      redis.call('HSET', MUT, id, after)
      redis.call('RPUSH', WAITING[math.min(2, suspicion + 1)], keys[n])
    end
  end
  if died > 0 then trim_dead(kept[2], died + 100) end
  return #keys, lost
end
