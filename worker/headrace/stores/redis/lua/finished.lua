-- FINISHED: one page of the finished jobs, by batches, newest or oldest first.
--
-- KEYS  1 done stream
-- ARGV  1 entry seen last, or '', 2 jobs wanted, at most 1,000, 3 newest first (0/1)
-- Returns {where the next call goes on, or '' at the end,
--          [entry, finished ms, worker, msgpack [id, type, attempt, result, ...], ...]}: whole batches, until they have so
--         many jobs, or 512 KiB, or 256 entries were looked at, which need not be of Headrace
-- Cost  O(page + log n). Called by the command line.
local DONE = KEYS[1]
--@include finished_entry

local wanted = math.min(tonumber(ARGV[2]), 1000)
local found, jobs, size, looked = {}, 0, 0, 0
local from = ARGV[1]
local function full() return jobs >= wanted or size >= 524288 or looked >= 256 end
while not full() do
  local page
  if ARGV[3] == '1' then
    page = redis.call('XREVRANGE', DONE, from == '' and '+' or '(' .. from, '-', 'COUNT', 8)
  else
    page = redis.call('XRANGE', DONE, from == '' and '-' or '(' .. from, '+', 'COUNT', 8)
  end
  if #page == 0 then return {'', found} end
  for _, entry in ipairs(page) do
    if full() then break end
    local told = finished_entry(entry)
    if told then
      found[#found + 1] = entry[1]
      found[#found + 1] = entry[2][2]
      found[#found + 1] = told.w
      found[#found + 1] = told.data
      jobs, size = jobs + told.n, size + #told.data
    end
    from, looked = entry[1], looked + 1
  end
end
return {from, found}
