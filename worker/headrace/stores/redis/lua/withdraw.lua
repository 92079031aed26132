-- WITHDRAW: live jobs that nobody wants any more are removed, wherever they wait.
--
-- KEYS  1 meta hash, 2-4 ready lists of lanes 0-2, 5 suspects list, 6 alone list, 7 scheduled zset, 8 retry zset,
--       9 park zset, 10 leased zset, 11 lease hash, 12 jobs hash, 13 mut hash, 14 moving hash
--       standalone form also: 15 hot zset, 16 due zset, 17 parked zset of the queue
-- ARGV  1 label "version:partition", 2 leased ones too (0/1), 3... stored ids, at most 100
-- Returns {[where each was, '' for none that is live, 'running', 'moving' or 'deep' for one that was left alone; deep: it is
--          ready, in the middle of a long list],
--          jobs are parked (0/1), jobs that a limit held back are ready (0/1)}; fewer than were asked for once their records
--          have 256 KiB: the caller asks again for the others
-- Cost  O(log n + bytes) for each job; a ready one is looked for in its list, not farther than some 10,000 entries in all.
--       Called to cancel and delete jobs.
local META, R0, R1, R2, SUSPECTS, ALONE, SCHEDULED, RETRY = unpack(KEYS, 1, 8)
local PARK, LEASED, LEASE, JOBS, MUT, MOVING = unpack(KEYS, 9, 14)
local HOT, DUE, PARKED = KEYS[15], KEYS[16], KEYS[17]
local LABEL = ARGV[1]
local LISTS = {R0, R1, R2, SUSPECTS, ALONE}
--@include take_out
--@include clock
--@include hints
--@include reopen
--@include live

-- A list is searched from both ends, all ids of the call together about 10,000 entries far.
local REACH = math.max(100, math.floor(5000 / math.max(1, #ARGV - 2)))
local filled = {}
for which = 1, 5 do filled[which] = redis.call('EXISTS', LISTS[which]) == 1 end
local function unlist(id)
  for which = 1, 5 do
    local lanes = not filled[which] and -1 or which <= 3 and 0 or 2
    for lane = 0, lanes do
      local entry = which <= 3 and id or lane .. id
      local index = redis.call('LPOS', LISTS[which], entry, 'RANK', 1, 'MAXLEN', REACH)
        or redis.call('LPOS', LISTS[which], entry, 'RANK', -1, 'MAXLEN', REACH)
      if index then
        take_out(which, index, redis.call('LLEN', LISTS[which]))
        return 1
      end
    end
  end
  return 0
end

local function unindex(id, state)
  local removed = 0
  if state == 'ready' then return unlist(id) end
  for lane = 0, 2 do
    local key = lane .. id
    if state == 'scheduled' then removed = removed + redis.call('ZREM', SCHEDULED, key)
    elseif state == 'retry' then removed = removed + redis.call('ZREM', RETRY, key)
    elseif state == 'leased' then removed = removed + redis.call('ZREM', LEASED, key)
    else
      local record = redis.call('HGET', JOBS, id)
      local kind = string.sub(record, 27, 26 + string.byte(record, 26))
      removed = removed + redis.call('ZREM', PARK, kind .. '\0' .. key)
    end
  end
  if state == 'leased' then redis.call('HDEL', LEASE, id) end
  return removed
end

local places, freed, bytes = {}, 0, 0
for n = 3, #ARGV do
  local id = ARGV[n]
  bytes = bytes + redis.call('HSTRLEN', JOBS, id)
  if n > 3 and bytes > 262144 then break end
  local found = live(id)
  local state = found and found[1] or ''
  if state ~= '' and redis.call('HEXISTS', MOVING, id) == 1 then
    state = 'moving'
  elseif state == 'leased' and ARGV[2] ~= '1' then
    state = 'running'
  elseif state ~= '' then
    local removed = unindex(id, state)
    if state == 'leased' then freed = freed + removed end
    if removed == 0 then
      state = 'deep'
    else
      redis.call('HDEL', JOBS, id)
      redis.call('HDEL', MUT, id)
    end
  end
  places[#places + 1] = state
end
local left = redis.call('EXISTS', PARK)
if PARKED and left == 0 then redis.call('ZREM', PARKED, LABEL) end
return {places, left, reopen(freed)}
