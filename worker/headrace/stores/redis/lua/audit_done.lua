-- AUDIT_DONE: some entries of the stream of finished jobs, and those among them that cannot be read.
--
-- KEYS  1 done stream
-- ARGV  1 entry seen last, or ''
-- Returns {entry with which the next call goes on, or '' at the end, [entry that cannot be read, ...]}
-- Cost  O(bytes looked at): at most 256 entries, or 256 KiB. Called by the audit.
local DONE = KEYS[1]
--@include finished_entry

local odd, looked, size, from = {}, 0, 0, ARGV[1]
while looked < 256 and size < 262144 do
  local page = redis.call('XRANGE', DONE, from == '' and '-' or '(' .. from, '+', 'COUNT', 8)
  if #page == 0 then return {'', odd} end
  for _, entry in ipairs(page) do
    local told = finished_entry(entry)
    local readable, jobs = pcall(cmsgpack.unpack, told and told.data)
    if not told or not readable or type(jobs) ~= 'table' or #jobs ~= told.n * 4 then odd[#odd + 1] = entry[1] end
    looked, size, from = looked + 1, size + (told and #told.data or 0), entry[1]
  end
end
return {from, odd}
