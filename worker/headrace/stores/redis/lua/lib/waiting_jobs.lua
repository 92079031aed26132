-- take_waiting(full, take): takes jobs that wait out of their indexes, one after the other, until full() is true or none
-- is left, and calls take(id, place, at ms, type, lane) for each.
local function take_waiting(full, take)
  local popped = 0 -- see lib/anchors.lua
  for n, list in ipairs({ALONE, SUSPECTS}) do
    while not full() do
      local key = redis.call('LPOP', list)
      if not key then break end
      popped = popped + 1
      take(string.sub(key, 2), n == 1 and 'alone' or 'suspect', 0, '', string.sub(key, 1, 1))
    end
  end
  for n, list in ipairs({R0, R1, R2}) do
    while not full() do
      local id = redis.call('LPOP', list)
      if not id then break end
      popped = popped + 1
      take(id, 'ready', 0, '', tostring(n - 1))
    end
  end
  if popped > 0 then redis.call('HINCRBY', META, 'took', popped) end
  for n, waiting in ipairs({RETRY, SCHEDULED}) do
    while not full() do
      local first = redis.call('ZPOPMIN', waiting)
      if #first == 0 then break end
      local key, at = first[1], tonumber(first[2])
      take(string.sub(key, 2), n == 1 and 'retry' or 'scheduled', at, '', string.sub(key, 1, 1))
    end
  end
  while not full() do
    local first = redis.call('ZPOPMIN', PARK)
    if #first == 0 then break end
    local kind, key = string.match(first[1], '^(%Z*)%z(.*)$')
    take(string.sub(key, 2), 'parked', 0, kind, string.sub(key, 1, 1))
  end
end
