-- Where jobs are, of the indexes with direct access. A job of a sound partition is in one index: one of these, or a list.
-- kind_of(): type of a job by its record (see headrace.envelope), nil if it cannot be read.
local function kind_of(record)
  if not record or #record < 26 or string.byte(record, 17) ~= 1 then return nil end
  local size = string.byte(record, 26)
  if #record < 28 + size then return nil end
  return string.sub(record, 27, 26 + size)
end

-- waiting_places(ids, found): adds to found[n] the name and member of each entry in scheduled, retry, leased and moving.
local WAITING = {SCHEDULED, RETRY, LEASED}
local NAMES = {'scheduled', 'retry', 'leased'}
local function waiting_places(ids, found)
  for first = 1, #ids, 1000 do -- unpack has a limit
    local members = {}
    for n = first, math.min(first + 999, #ids) do
      for lane = 0, 2 do members[#members + 1] = lane .. ids[n] end
    end
    for index, name in ipairs(NAMES) do
      local scores = redis.call('ZMSCORE', WAITING[index], unpack(members))
      for k = 1, #members do
        if scores[k] then
          local place = found[first - 1 + math.ceil(k / 3)]
          place[#place + 1], place[#place + 2] = name, members[k]
        end
      end
    end
  end
  if redis.call('EXISTS', MOVING) == 0 then return end
  for n, id in ipairs(ids) do
    if redis.call('HEXISTS', MOVING, id) == 1 then
      local place = found[n]
      place[#place + 1], place[#place + 2] = 'moving', id
    end
  end
end

-- parked_places(ids, kinds, found): the same for park; kinds[n] false where the record cannot be read.
local function parked_places(ids, kinds, found)
  if redis.call('EXISTS', PARK) == 0 then return end
  for n, id in ipairs(ids) do
    for lane = 0, kinds[n] and 2 or -1 do
      local member = kinds[n] .. '\0' .. lane .. id
      if redis.call('ZSCORE', PARK, member) then
        local place = found[n]
        place[#place + 1], place[#place + 2] = 'park', member
      end
    end
  end
end
