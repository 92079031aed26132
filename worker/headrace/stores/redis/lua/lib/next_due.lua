-- next_due(earliest): the earlier of `earliest` (ms, below 0: none), when a lease ends, and when a waiting job is due.
local function next_due(earliest)
  for _, waiting in ipairs({SCHEDULED, RETRY}) do
    local head = redis.call('ZRANGE', waiting, '0', '0', 'WITHSCORES')
    local at = head[2] and tonumber(head[2])
    if at and (earliest < 0 or at < earliest) then earliest = at end
  end
  return earliest
end
