-- BROWSE: some jobs of one index, from its beginning, with their records. Reads only.
--
-- KEYS  1-3 ready lists of lanes 0-2, 4 suspects list, 5 alone list, 6 scheduled zset, 7 retry zset, 8 park zset,
--       9 leased zset, 10 jobs hash, 11 mut hash, 12 lease hash
-- ARGV  1 which index: 1-5 the lists in the order of KEYS, 6-9 the zsets, 2 entries to skip, 3 entries at most, up to 100
-- Returns [id, score or -1, record, changes or '', token or '', ...]; about 2 MiB of records at most, fewer entries then
-- Cost  O(entries), and a seek in a list. Called by lists of jobs, page by page.
local R0, R1, R2, SUSPECTS, ALONE, SCHEDULED, RETRY, PARK, LEASED, JOBS, MUT, LEASE = unpack(KEYS, 1, 12)
local LISTS = {R0, R1, R2, SUSPECTS, ALONE}
local ZSETS = {SCHEDULED, RETRY, PARK, LEASED}
local which, first = tonumber(ARGV[1]), tonumber(ARGV[2])
local last = first + math.min(tonumber(ARGV[3]), 100) - 1
local entries, step = {}, 1
if which <= 5 then
  entries = redis.call('LRANGE', LISTS[which], first, last)
else
  entries, step = redis.call('ZRANGE', ZSETS[which - 5], first, last, 'WITHSCORES'), 2
end

local jobs, size = {}, 0
for n = 1, #entries, step do
  local entry = entries[n]
  local id = which <= 3 and entry or which == 8 and string.match(entry, '^%Z*%z.(.*)$') or string.sub(entry, 2)
  local record, changes = redis.call('HGET', JOBS, id) or '', redis.call('HGET', MUT, id) or ''
  size = size + #record + #changes
  if size > 2097152 and #jobs > 0 then break end
  local token = which == 9 and redis.call('HGET', LEASE, id) or ''
  for _, part in ipairs({id, entries[n + step - 1], record, changes, token}) do jobs[#jobs + 1] = part end
  if step == 1 or which == 8 then jobs[#jobs - 3] = '-1' end
end
return jobs
