-- REPAIR_LIST: take an entry out of a ready list, the suspects or the jobs that run alone, if it is still as the audit has
-- found it: without a record, beside an entry in another index, or a second time in these lists.
--
-- KEYS  1 meta hash, 2-4 ready lists of lanes 0-2, 5 suspects list, 6 alone list, 7 scheduled zset, 8 retry zset,
--       9 leased zset, 10 jobs hash, 11 park zset, 12 moving hash
-- ARGV  1 list (1-5), 2 entry, 3 its distance from the tail when it was seen, 4 no record | elsewhere | twice,
--       5 list of the other entry and 6 its distance, for twice
-- Returns 1, or 0 and nothing changed if it is no longer so, or was not found near where it was
-- Cost  O(1) but for two windows of 4,000 entries. Called by the audit.
local META, R0, R1, R2, SUSPECTS, ALONE, SCHEDULED, RETRY, LEASED, JOBS, PARK, MOVING = unpack(KEYS)
local LISTS = {R0, R1, R2, SUSPECTS, ALONE}
--@include places
--@include anchors
--@include take_out

-- Places of a job in a list (from 0, towards the tail), near the one where it was seen.
local function near(which, id, distance)
  local length, found = redis.call('LLEN', LISTS[which]), {}
  local first = math.max(0, length - 3001 - distance)
  for n, entry in ipairs(redis.call('LRANGE', LISTS[which], first, length + 999 - distance)) do
    if id_of(which, entry) == id then found[#found + 1] = first + n - 1 end
  end
  return found
end

local which, entry, reason = tonumber(ARGV[1]), ARGV[2], ARGV[4]
local id = id_of(which, entry)
local places = near(which, id, tonumber(ARGV[3]))
local index = places[1]
if reason == 'twice' then
  -- The one that is nearer to the tail goes, where both are in one list.
  local other = tonumber(ARGV[5])
  local others = near(other, id, tonumber(ARGV[6]))
  index = places[#places]
  if not index or #others == 0 then return 0 end
  if other == which then
    index = math.max(index, others[#others])
    if index == math.min(places[1], others[1]) then return 0 end
  end
else
  if not index then return 0 end
  local record = id ~= '' and redis.call('HGET', JOBS, id)
  if reason == 'no record' then
    if record then return 0 end
  else
    local found = {{}}
    waiting_places({id}, found)
    parked_places({id}, {kind_of(record) or false}, found)
    if not found[1][1] then return 0 end
  end
end
take_out(which, index, redis.call('LLEN', LISTS[which]))
return 1
