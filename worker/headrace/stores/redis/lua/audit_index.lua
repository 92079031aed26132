-- AUDIT_INDEX: one page of an index with direct access, or of what must agree with one, and what is not sound in it.
--
-- KEYS  1 scheduled zset, 2 retry zset, 3 leased zset, 4 lease hash, 5 jobs hash, 6 mut hash, 7 park zset, 8 moving hash,
--       9 dead zset, 10 dead letters hash, 11 arrived hash
-- ARGV  1 which: scheduled | retry | leased | park | moving | arrived | lease | mut | dead | letters, 2 cursor,
--       3 members about wanted,
--       4 msgpack [member, ...] of the page that this cursor has ended which are left, or '' to go on to the next page
-- Returns {next cursor ('0': the last page), msgpack [member, ...] of the page that are left, for the next call, or '',
--          msgpack [[member, id, has a record (0/1), index, member, ...], ...] of those that are not sound; index
--          'unreadable': what is stored for it cannot be read. Of values larger than 4 KiB nothing is said}
-- Cost  O(members), as many as one node of a small key holds; parked ones with at most 1 MiB of records, or one that is
--       larger. Called by the audit.
local SCHEDULED, RETRY, LEASED, LEASE, JOBS, MUT, PARK, MOVING, DEAD, LETTERS, ARRIVED = unpack(KEYS)
local HASHES = {moving = MOVING, arrived = ARRIVED, lease = LEASE, mut = MUT, letters = LETTERS}
--@include places
--@include page
--@include cut_off
--@include readable

local which, odd, bytes, left = ARGV[1], {}, 0, ''
local ZSETS = {scheduled = SCHEDULED, retry = RETRY, leased = LEASED, park = PARK, dead = DEAD}
local VALUES = {mut = MUT, moving = MOVING, arrived = ARRIVED, dead = LETTERS}
local cursor, members, ids, found = ARGV[2], {}, {}, {}
if ARGV[4] ~= '' then
  members = cmsgpack.unpack(ARGV[4])
elseif ZSETS[which] then
  local page = redis.call('ZSCAN', ZSETS[which], ARGV[2], 'COUNT', ARGV[3])
  cursor = page[1]
  for i = 1, #page[2], 2 do members[#members + 1] = page[2][i] end
else
  cursor, members = next_page(which, ARGV[2], ARGV[3])
end

local function readable_label(label) return string.match(label, '^%d+:%d+$') ~= nil end
local READABLE = {mut = readable_changes, moving = readable_aside, arrived = readable_label, dead = readable_letter}
-- Whether the value of a member is short, and cannot be read.
local function unreadable(member)
  if redis.call('HSTRLEN', VALUES[which], member) > 4096 then return false end
  local value = redis.call('HGET', VALUES[which], member)
  return value and not READABLE[which](value)
end

for n, member in ipairs(members) do
  ids[n], found[n] = member, {}
  if which == 'scheduled' or which == 'retry' or which == 'leased' then
    ids[n] = string.match(member, '^[012](.+)$') or ''
  elseif which == 'park' then
    ids[n] = string.match(string.sub(member, (string.find(member, '\0', 1, true) or 0) + 1), '^[012](.+)$') or ''
    bytes = bytes + redis.call('HSTRLEN', JOBS, ids[n])
    if n > 1 and bytes > 1048576 then
      left, ids[n], found[n] = cmsgpack.pack(cut_off(members, n)), nil, nil
      break
    end
  end
end
if #members == 0 then return {cursor, '', cmsgpack.pack(odd)} end

if which == 'dead' then
  for n, member in ipairs(members) do
    if redis.call('HEXISTS', LETTERS, member) == 0 then
      odd[#odd + 1] = {member, member, 0}
    elseif unreadable(member) then
      odd[#odd + 1] = {member, member, 1, 'unreadable'}
    end
  end
elseif which == 'arrived' then
  for _, member in ipairs(members) do
    if unreadable(member) then odd[#odd + 1] = {member, member, 1, 'unreadable'} end
  end
elseif which == 'letters' then
  for n, member in ipairs(members) do
    if not redis.call('ZSCORE', DEAD, member) then odd[#odd + 1] = {member, member, 1} end
  end
else
  if which ~= 'mut' then waiting_places(ids, found) end
  for n, member in ipairs(members) do
    local record = ids[n] ~= '' and redis.call('HEXISTS', JOBS, ids[n]) or 0
    local wrong = record == 0
    if which == 'lease' then
      local leased = false
      for i = 1, #found[n], 2 do leased = leased or found[n][i] == 'leased' end
      wrong = not leased
    elseif which == 'park' then
      -- Under a type that is not its own it would not be found.
      local kind = record == 1 and kind_of(redis.call('HGET', JOBS, ids[n]))
      wrong = wrong or found[n][1] or not kind or string.sub(member, 1, #kind + 1) ~= kind .. '\0'
    elseif which ~= 'mut' then
      wrong = wrong or found[n][3] or (which == 'leased' and redis.call('HEXISTS', LEASE, ids[n]) == 0)
    end
    if wrong then
      odd[#odd + 1] = {member, ids[n], record, unpack(found[n])}
    elseif (which == 'mut' or which == 'moving') and unreadable(member) then
      odd[#odd + 1] = {member, ids[n], record, 'unreadable'}
    end
  end
end
return {cursor, left, cmsgpack.pack(odd)}
