-- AUDIT_RECORDS: one page of the records, with where each job is according to the indexes with direct access.
--
-- KEYS  1 scheduled zset, 2 retry zset, 3 leased zset, 4 jobs hash, 5 park zset, 6 moving hash
-- ARGV  1 cursor, 2 records about wanted, 3 return every id (0/1),
--       4 msgpack [id, ...] of the page that this cursor has ended which are left, or '' to go on to the next page
-- Returns {next cursor ('0': the last page), msgpack [id, ...] of the page that are left, for the next call, or '',
--          msgpack [id, ...] of those in none of these indexes, which must be in a list, or of all;
--          msgpack [[id, index, member], ...] of those in several, msgpack [id, ...] of those that cannot be read}
-- Cost  O(records), with at most 1 MiB of them, or one that is larger. Called by the audit.
local SCHEDULED, RETRY, LEASED, JOBS, PARK, MOVING = unpack(KEYS)
local HASHES = {jobs = JOBS}
--@include places
--@include page
--@include cut_off
--@include readable

local cursor, ids = ARGV[1], nil
if ARGV[4] == '' then cursor, ids = next_page('jobs', cursor, ARGV[2]) else ids = cmsgpack.unpack(ARGV[4]) end
local kinds, found, unreadable, bytes, left = {}, {}, {}, 0, {}
for n, id in ipairs(ids) do
  bytes = bytes + redis.call('HSTRLEN', JOBS, id)
  if n > 1 and bytes > 1048576 then
    left = cut_off(ids, n)
    break
  end
  local record = redis.call('HGET', JOBS, id)
  kinds[n], found[n] = record and kind_of(record) or false, {}
  if record and not readable_record(record) then unreadable[#unreadable + 1] = id end
end
waiting_places(ids, found)
parked_places(ids, kinds, found)
local listed, odd = {}, {}
for n, id in ipairs(ids) do
  if not found[n][1] or ARGV[3] == '1' then listed[#listed + 1] = id end
  if found[n][3] then odd[#odd + 1] = {id, found[n][1], found[n][2]} end
end
local rest = #left > 0 and cmsgpack.pack(left) or ''
return {cursor, rest, cmsgpack.pack(listed), cmsgpack.pack(odd), cmsgpack.pack(unreadable)}
