-- unhinted(label): 1 if the partition needs a worker and no hint says so, now or later. A held partition with nothing but
-- ready jobs needs none; in the Cluster form hints follow the scripts, so it cannot be said.
local function unhinted(label)
  if not HOT then return 0 end
  local meta = redis.call('HMGET', META, 's', 'hold')
  if meta[1] ~= 'A' and meta[1] ~= 'D' then return 0 end
  local needs = redis.call('EXISTS', SCHEDULED, RETRY, LEASED) > 0
    or (meta[2] ~= '1' and redis.call('EXISTS', R0, R1, R2, SUSPECTS, ALONE) > 0)
  if not needs or redis.call('ZSCORE', DUE, label) or redis.call('ZSCORE', HOT, label) then return 0 end
  return 1
end
