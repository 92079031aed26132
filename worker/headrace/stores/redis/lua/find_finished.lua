-- FIND_FINISHED: what became of finished jobs, looked for from the newest to the oldest; of an id that finished several
-- times the newest.
--
-- KEYS  1 done stream
-- ARGV  1 look at older entries than this one, or '', 2 look at newer entries than this one, or '', then stored ids
-- Returns {where the next call goes on, or '' at the end, [entry, finished ms, worker, id, type, attempt, result, ...]};
--         it ends when each id was met
-- Cost  O(bytes looked at): at most 256 entries, or 256 KiB; for more than 8 ids 64 KiB. Called for jobs that are not live.
local DONE = KEYS[1]
--@include finished_entry

local needles, left = {}, #ARGV - 2
-- A few ids are looked for in the packed data; for many it is cheaper to unpack all of it.
local few = left <= 8
local most = few and 262144 or 65536
for i = 3, #ARGV do
  -- A short text of msgpack has its length in front: that spares a look into most of the data that hold it elsewhere.
  needles[ARGV[i]] = #ARGV[i] < 32 and string.char(160 + #ARGV[i]) .. ARGV[i] or ARGV[i]
end
local found, looked, size = {}, 0, 0
local from, to = ARGV[1] == '' and '+' or '(' .. ARGV[1], ARGV[2] == '' and '-' or '(' .. ARGV[2]

local function look(entry)
  local held = {}
  local batch = finished_entry(entry)
  if not batch then return 0 end
  local data = batch.data
  if few then
    for id, needle in pairs(needles) do
      if string.find(data, needle, 1, true) then held[id] = true end
    end
    if not next(held) then return #data end
  end
  local whole, jobs = pcall(cmsgpack.unpack, data)
  for i = 1, whole and type(jobs) == 'table' and #jobs or 0, 4 do
    local id = jobs[i]
    if needles[id] and (held[id] or not few) then
      for _, part in ipairs({entry[1], entry[2][2], entry[2][4], id, jobs[i + 1], jobs[i + 2], jobs[i + 3]}) do
        found[#found + 1] = part
      end
      needles[id] = nil
      left = left - 1
    end
  end
  return #data
end

while left > 0 do
  local page = redis.call('XREVRANGE', DONE, from, to, 'COUNT', 8)
  if #page == 0 then return {'', found} end
  for _, entry in ipairs(page) do
    if looked >= 256 or size >= most then return {string.sub(from, 2), found} end
    looked, size, from = looked + 1, size + look(entry), '(' .. entry[1]
  end
end
return {'', found}
