-- AUDIT_RECORDS: one page of the records, with where each job is according to the indexes with direct access.
--
-- KEYS  1 scheduled zset, 2 retry zset, 3 leased zset, 4 jobs hash, 5 park zset, 6 moving hash
-- ARGV  1 cursor, 2 records about wanted, 3 return every id (0/1)
-- Returns {next cursor ('0': the last page), records seen, bytes read, msgpack [id, ...] of those in none of these indexes,
--          which must be in a list, or of all; msgpack [[id, index, member], ...] of those in several}
-- Cost  O(records); as many as one node of a small hash holds. Called by the audit.
local SCHEDULED, RETRY, LEASED, JOBS, PARK, MOVING = unpack(KEYS)
--@include places

local page = redis.call('HSCAN', JOBS, ARGV[1], 'COUNT', ARGV[2])
local ids, kinds, found, bytes = {}, {}, {}, 0
for i = 1, #page[2], 2 do
  local n = #ids + 1
  ids[n], kinds[n], found[n] = page[2][i], kind_of(page[2][i + 1]) or false, {}
  bytes = bytes + #page[2][i + 1]
end
waiting_places(ids, found)
parked_places(ids, kinds, found)
local listed, odd = {}, {}
for n, id in ipairs(ids) do
  if not found[n][1] or ARGV[3] == '1' then listed[#listed + 1] = id end
  if found[n][3] then odd[#odd + 1] = {id, found[n][1], found[n][2]} end
end
return {page[1], #ids, bytes, cmsgpack.pack(listed), cmsgpack.pack(odd)}
