-- next_due(): the earliest time at which a waiting or leased job needs attention, nil if there is none.
local function next_due()
  local earliest
  for _, waiting in ipairs({SCHEDULED, RETRY, LEASED}) do
    local head = redis.call('ZRANGE', waiting, 0, 0, 'WITHSCORES')
    local at = head[2] and tonumber(head[2])
    if at and (not earliest or at < earliest) then earliest = at end
  end
  return earliest
end
