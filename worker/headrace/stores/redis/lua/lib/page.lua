-- next_page(which, cursor, most): next cursor and fields of one page of HASHES[which], without their values. A server that
-- cannot leave them out (before Redis 7.4 and Valkey 8) reads 16 at a time, for each may be as large as a job.
local function next_page(which, cursor, most)
  local page = redis.pcall('HSCAN', HASHES[which], cursor, 'COUNT', most, 'NOVALUES')
  if not page.err then return page[1], page[2] end
  page = redis.call('HSCAN', HASHES[which], cursor, 'COUNT', math.min(most, 16))
  local fields = {}
  for i = 1, #page[2], 2 do fields[#fields + 1] = page[2][i] end
  return page[1], fields
end
