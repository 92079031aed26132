-- AUDIT_CONFIRM: of jobs that seemed to be in no index, those that are in none; of places in lists that seemed to hold one
-- job twice, those that do. What was read of the lists before need not be read again (see AUDIT_LIST): only what has come
-- at their ends since, so that the answer holds for one moment.
--
-- KEYS  1 meta hash, 2-4 ready lists of lanes 0-2, 5 suspects list, 6 alone list, 7 scheduled zset, 8 retry zset,
--       9 leased zset, 10 lease hash, 11 jobs hash, 12 mut hash, 13 park zset, 14 moving hash, 15 dead zset,
--       16 dead letters hash; standalone form also: 17 hot zset, 18 due zset
-- ARGV  1 label "version:partition",
--       2 msgpack [anchors of each of the 5 lists (see lib/anchors.lua), or '' for one that is to be read whole]
--       3 msgpack [id, ...], at most 200,
--       4 msgpack [[list, distance from its first anchor, list, distance from its first anchor], ...], at most 200; what is
--         twice in lists that are read whole is found without,
--       5 repair (0/1): make those that are in no index ready, or dead letters where no worker comes any more,
--       6 shifts (see lib/anchors.lua) when the first of the lists was begun,
--       7 entries to look through at most, of lists that shifted
-- Returns {'ok', ids looked at, msgpack [id, ...] in no index, msgpack [[id, list, distance from the tail, list, distance
--          from the tail], ...]}
--         {'lost', list, shifts}: none of its anchors is there. {'behind', list}: over 5,000 entries have come to it since
--         {'shifted'}: lists did that are longer, so nothing can be said of ids that were not seen
-- Cost  O(ids + entries that have come), with at most 1 MiB of records; O(entries to look through), at some 20 ns each.
--       Called by the audit.
local META, R0, R1, R2, SUSPECTS, ALONE, SCHEDULED, RETRY, LEASED, LEASE, JOBS, MUT, PARK, MOVING = unpack(KEYS, 1, 14)
local DEAD, LETTERS = KEYS[15], KEYS[16]
local HOT, DUE = KEYS[17], KEYS[18]
local LABEL = ARGV[1]
local LISTS = {R0, R1, R2, SUSPECTS, ALONE}
--@include clock
--@include changes
--@include bury
--@include ready
--@include hints
--@include places
--@include anchors

local sweeps, listed, behind, come, doubles = cmsgpack.unpack(ARGV[2]), {}, {}, 0, {}
for which, seen in ipairs(sweeps) do
  local length = redis.call('LLEN', LISTS[which])
  local head, tail = length, 0
  if seen ~= '' then
    behind[which] = anchor_distance(which, seen)
    if not behind[which] then return {'lost', which, shifts()} end
    head, tail = math.max(0, length - behind[which] - seen[1][3]), behind[which]
  end
  come = come + head + tail
  if come > 5000 then return {'behind', which} end
  for _, part in ipairs({{0, head - 1}, {length - tail, length - 1}}) do
    if part[2] >= part[1] then
      for n, entry in ipairs(redis.call('LRANGE', LISTS[which], part[1], part[2])) do
        local id, distance = id_of(which, entry), length - part[1] - n
        local before = listed[id]
        if before and id ~= '' then
          doubles[#doubles + 1] = {id, before[1], before[2], which, distance}
        else
          listed[id] = {which, distance}
        end
      end
    end
  end
end

-- Whether a job is in a list that shifted, where it may stand in the place of one that was read.
local lengths, all = {}, 0
for which = 1, 5 do
  lengths[which] = redis.call('LLEN', LISTS[which])
  all = all + lengths[which] * (which < 4 and 1 or 3)
end
local function is_listed(id)
  for which = 1, 5 do
    for lane = 0, lengths[which] == 0 and -1 or which < 4 and 0 or 2 do
      local entry = which < 4 and id or lane .. id
      if redis.call('LPOS', LISTS[which], entry, 'MAXLEN', lengths[which]) then return true end
    end
  end
  return false
end

local shifted, searched = shifts() ~= tonumber(ARGV[6]), 0
local looked, bytes, missing = 0, 0, {}
for _, id in ipairs(cmsgpack.unpack(ARGV[3])) do
  bytes = bytes + redis.call('HSTRLEN', JOBS, id)
  if looked > 0 and bytes > 1048576 then break end
  local record = not listed[id] and redis.call('HGET', JOBS, id)
  if record then
    local found = {{}}
    waiting_places({id}, found)
    parked_places({id}, {kind_of(record) or false}, found)
    if shifted and not found[1][1] then
      searched = searched + all
      if searched > tonumber(ARGV[7]) then
        if looked == 0 then return {'shifted'} end
        break
      end
    end
    if not (found[1][1] or shifted and is_listed(id)) then missing[#missing + 1] = id end
  end
  looked = looked + 1
end

for _, pair in ipairs(cmsgpack.unpack(ARGV[4])) do
  local ids, distances = {}, {}
  for n = 1, 2 do
    local which = pair[n * 2 - 1]
    if behind[which] then
      distances[n] = behind[which] + pair[n * 2]
      local entry = distances[n] >= 0 and redis.call('LINDEX', LISTS[which], -1 - distances[n])
      ids[n] = entry and id_of(which, entry)
    end
  end
  if ids[1] and ids[1] == ids[2] then
    doubles[#doubles + 1] = {ids[1], pair[1], distances[1], pair[3], distances[2]}
  elseif (ids[1] or ids[2]) and not (behind[pair[1]] and behind[pair[3]]) then
    local n = ids[1] and 1 or 2
    local before = listed[ids[n]] -- in a list that was read whole
    if before and not behind[before[1]] then
      doubles[#doubles + 1] = {ids[n], before[1], before[2], pair[n * 2 - 1], distances[n]}
    end
  end
end

if ARGV[5] == '1' and #missing > 0 then
  local meta = redis.call('HMGET', META, 's', 't', 'hist')
  local now, ready = server_now(meta[2]), {}
  for _, id in ipairs(missing) do
    redis.call('HDEL', LEASE, id)
    local event = {status = 'repaired', now = now, token = '', error = ''}
    if meta[1] == 'A' or meta[1] == 'D' then
      redis.call('HSET', MUT, id, (changed(redis.call('HGET', MUT, id), event, meta[3])))
      local lane = string.byte(redis.call('HGET', JOBS, id), 25)
      ready[#ready + 1] = (lane and lane <= 2 and lane or 1) .. id
    else
      event.error = 'found in a partition that is closed'
      bury(id, (changed(redis.call('HGET', MUT, id), event, meta[3])), now)
    end
  end
  if #ready > 0 then
    push_ready(ready)
    hint_ready(now)
  end
end
return {'ok', looked, cmsgpack.pack(missing), cmsgpack.pack(doubles)}
