-- PURGE: looks at some waiting jobs of one index, from its end, and removes those that match.
--
-- KEYS  1 meta hash, 2-4 ready lists of lanes 0-2, 5 suspects list, 6 alone list, 7 scheduled zset, 8 retry zset,
--       9 park zset, 10 jobs hash, 11 mut hash; standalone form also: 12 parked zset of the queue
-- ARGV  1 label "version:partition", 2 which index: 1-5 the lists in the order of KEYS, 6-8 the zsets, 3 entries at the end
--       that were seen before, 4 entries to look at, at most 100, or 2,000 if 9 says which job it is, 5 enqueued before that time, ms, 6 of any type (1), or
--       only (0) of 7 this type, 8 remove them (1) or only count (0),
--       9 stored id of the one job that is looked for, or ''
-- Looks at 256 KiB of records at most, or at one larger record.
-- Returns {entries seen, those that match, jobs are parked (0/1)}; no entry seen: that is all
-- Cost  O(entries log n + bytes). What is removed from a list is replaced by its last entry: one seek each.
--       Called by purges, until there are no more.
local META, R0, R1, R2, SUSPECTS, ALONE, SCHEDULED, RETRY, PARK, JOBS, MUT = unpack(KEYS, 1, 11)
local PARKED, LABEL, WHICH = KEYS[12], ARGV[1], tonumber(ARGV[2])
local LISTS = {R0, R1, R2, SUSPECTS, ALONE}
local ZSETS = {SCHEDULED, RETRY, PARK}
--@include take_out

local ONE = ARGV[9]
local window = math.min(tonumber(ARGV[4]), ONE == '' and 100 or 2000)
local first, last = -(tonumber(ARGV[3]) + window), -(tonumber(ARGV[3]) + 1)
local entries, length, ids
if WHICH <= 5 then
  length = redis.call('LLEN', LISTS[WHICH])
  entries = last >= -length and redis.call('LRANGE', LISTS[WHICH], first, last) or {}
else
  length = redis.call('ZCARD', ZSETS[WHICH - 5])
  entries = last >= -length and redis.call('ZRANGE', ZSETS[WHICH - 5], first, last) or {}
end
local function parked()
  local left = redis.call('EXISTS', PARK)
  if PARKED and left == 0 then redis.call('ZREM', PARKED, LABEL) end
  return left
end
if #entries == 0 then return {0, 0, parked()} end
ids = {}
for n, entry in ipairs(entries) do
  if WHICH <= 3 then ids[n] = entry
  elseif WHICH <= 7 then ids[n] = string.sub(entry, 2)
  else ids[n] = string.match(entry, '^%Z*%z.(.*)$') end
end

local before, any, kind = tonumber(ARGV[5]), ARGV[6] == '1', ARGV[7]
local function matches(record)
  if not record or #record < 26 then return false end -- of a foreign hand: the audit's business
  if not (struct.unpack('>I8', record) < before) then return false end
  return any or string.sub(record, 27, 26 + string.byte(record, 26)) == kind
end

local found, gone, seen, bytes = {}, {}, 0, 0
for n = #entries, 1, -1 do
  local record
  if ONE == '' then
    bytes = bytes + redis.call('HSTRLEN', JOBS, ids[n])
    if seen > 0 and bytes > 262144 then break end -- the next step begins with it
    record = redis.call('HGET', JOBS, ids[n])
  end
  seen = seen + 1
  if ids[n] == ONE or matches(record) then
    found[#found + 1] = ids[n]
    if ARGV[8] == '1' then
      if WHICH <= 5 then
        -- Those nearer to the end were seen, so one of them may come here.
        take_out(WHICH, length + last - (#entries - n), length - (#found - 1))
      else
        gone[#gone + 1] = entries[n]
      end
    end
  end
end
if ARGV[8] == '1' and #found > 0 then
  if #gone > 0 then redis.call('ZREM', ZSETS[WHICH - 5], unpack(gone)) end
  redis.call('HDEL', JOBS, unpack(found))
  redis.call('HDEL', MUT, unpack(found))
end
return {seen, #found, parked()}
