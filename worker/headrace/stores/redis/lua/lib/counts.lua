-- counts(): sizes of the partition's indexes and facts of its drain, in the order that the client reads them.
local function counts()
  local meta = redis.call('HMGET', META, 's', 'marked', 't', 'e', 'of', 'i')
  local ready, oldest = 0, -1
  for _, lane in ipairs({R0, R1, R2}) do
    local size = redis.call('LLEN', lane)
    ready = ready + size
    local record = size > 0 and redis.call('HGET', JOBS, redis.call('LINDEX', lane, 0))
    if record and #record >= 16 then
      local run_at = struct.unpack('>I8', record, 9)
      if oldest < 0 or run_at < oldest then oldest = run_at end
    end
  end
  ready = ready + redis.call('LLEN', SUSPECTS) + redis.call('LLEN', ALONE)
  local due = -1
  for _, waiting in ipairs({SCHEDULED, RETRY}) do
    local head = redis.call('ZRANGE', waiting, 0, 0, 'WITHSCORES')
    local at = head[2] and tonumber(head[2])
    if at and (due < 0 or at < due) then due = at end
  end
  return {
    meta[1] or 'absent',
    ready,
    redis.call('ZCARD', SCHEDULED),
    redis.call('ZCARD', RETRY),
    redis.call('ZCARD', LEASED),
    redis.call('ZCARD', PARK),
    redis.call('HLEN', MOVING),
    redis.call('HLEN', ARRIVED),
    redis.call('ZCARD', DEAD),
    oldest,
    due,
    tonumber(meta[2]) or -1,
    server_now(meta[3]),
    tonumber(meta[4]) or 0, -- one that cannot be read is a sign for SETTLE: it makes the settings anew
    meta[5] or '',
    tonumber(meta[6]) or 1,
  }
end

local function live(sizes)
  local sum = 0
  for n = 2, 8 do sum = sum + sizes[n] end
  return sum
end
