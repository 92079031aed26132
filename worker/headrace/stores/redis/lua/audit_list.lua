-- AUDIT_LIST: one page of a ready list or of the suspects, read from the tail to the head, and what is wrong with the jobs
-- in it. The distance of two entries that stay never changes (see lib/anchors.lua): a page begins where the one before has ended,
-- whatever was popped, pushed and taken out in between.
--
-- KEYS  1 meta hash, 2-4 ready lists of lanes 0-2, 5 suspects list, 6 alone list, 7 scheduled zset, 8 retry zset,
--       9 leased zset, 10 jobs hash, 11 park zset, 12 moving hash
-- ARGV  1 list (1-5), 2 'head' | 'tail': read on towards the head, or what was pushed since the anchor,
--       3 entries at most (up to 1,000), 4 msgpack of what was read before (see lib/anchors.lua), '' to begin
-- Returns {'ok', shifts, took, length, distance of the anchor from the tail, entries left in that direction, bytes of
--          records read, msgpack [entry, ...] in the order of reading, msgpack [[position in the page, id, has a record
--          (0/1), index, member, ...], ...] of those that are not sound: no record, or in other indexes too}
--         {'lost', shifts}: its anchor is not there
-- Cost  O(entries), with at most 1 MiB of records; a seek in the list. Called by the audit.
local META, R0, R1, R2, SUSPECTS, ALONE, SCHEDULED, RETRY, LEASED, JOBS, PARK, MOVING = unpack(KEYS)
local LISTS = {R0, R1, R2, SUSPECTS, ALONE}
--@include places
--@include anchors

local which, tailwards, most = tonumber(ARGV[1]), ARGV[2] == 'tail', math.min(tonumber(ARGV[3]), 1000)
local length = redis.call('LLEN', LISTS[which])
local behind, first, last = 0, math.max(0, length - most), length - 1
if ARGV[4] ~= '' then
  local seen = cmsgpack.unpack(ARGV[4])
  behind = anchor_distance(which, {seen})
  if not behind then return {'lost', shifts()} end
  if tailwards then
    first, last = length - behind, math.min(length - 1, length - behind + most - 1)
  else
    last = length - 1 - behind - seen[3]
    first = math.max(0, last - most + 1)
  end
end

local entries = last >= first and redis.call('LRANGE', LISTS[which], first, last) or {}
local asked = #entries
if not tailwards then
  for n = 1, math.floor(asked / 2) do entries[n], entries[asked + 1 - n] = entries[asked + 1 - n], entries[n] end
end
local ids, records, kinds, found, bytes = {}, {}, {}, {}, 0
for n = 1, asked do
  local id = id_of(which, entries[n])
  bytes = bytes + redis.call('HSTRLEN', JOBS, id)
  if n > 1 and bytes > 1048576 then break end
  ids[n], records[n], found[n] = id, redis.call('HGET', JOBS, id), {}
  kinds[n] = kind_of(records[n]) or false
end
for n = asked, #ids + 1, -1 do entries[n] = nil end
waiting_places(ids, found)
parked_places(ids, kinds, found)
local odd = {}
for n, id in ipairs(ids) do
  if not records[n] or found[n][1] then
    odd[#odd + 1] = {n - 1, id, records[n] and 1 or 0, unpack(found[n])}
  end
end
local left = asked - #ids + math.max(0, tailwards and length - 1 - last or first)
local took = tonumber(redis.call('HGET', META, 'took') or 0)
return {'ok', shifts(), took, length, behind, left, bytes, cmsgpack.pack(entries), cmsgpack.pack(odd)}
