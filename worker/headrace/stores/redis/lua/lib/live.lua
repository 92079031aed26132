-- live(id): where a job is, {state, at, token}; nil if its id is not live here. States: scheduled, retry (`at`: until when
-- it waits), leased (`at`: end of its lease), parked, ready. One that is set aside to be moved waits as it did before.
local function live(id)
  if redis.call('HEXISTS', JOBS, id) == 0 then return nil end
  local token = redis.call('HGET', LEASE, id)
  for lane = 0, 2 do
    local key = lane .. id
    if token then
      local ends = redis.call('ZSCORE', LEASED, key)
      if ends then return {'leased', ends, token} end
    else
      local at = redis.call('ZSCORE', SCHEDULED, key)
      if at then return {'scheduled', at, ''} end
      at = redis.call('ZSCORE', RETRY, key)
      if at then return {'retry', at, ''} end
    end
  end
  local aside = redis.call('EXISTS', MOVING) == 1 and redis.call('HGET', MOVING, id)
  if aside then
    local whole, facts = pcall(cmsgpack.unpack, aside)
    whole = whole and type(facts) == 'table'
    local place, at = whole and facts[2], whole and facts[3]
    if place == 'scheduled' or place == 'retry' then return {place, at, ''} end
    return {place == 'parked' and place or 'ready', -1, ''}
  end
  if redis.call('EXISTS', PARK) == 1 then
    local record = redis.call('HGET', JOBS, id)
    local lane, length = string.byte(record, 25), string.byte(record, 26)
    local kind = string.sub(record, 27, 26 + (length or 0))
    if length and redis.call('ZSCORE', PARK, kind .. '\0' .. lane .. id) then return {'parked', -1, ''} end
  end
  return {'ready', -1, ''}
end
