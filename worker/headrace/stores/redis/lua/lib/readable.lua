-- What can be read of what is stored for a job; what cannot was not written by any step.
-- readable_record(): the sizes in it are those that it has (see headrace.envelope). Of a format that is not known here, but may
-- be of a later release, nothing can be said.
local function readable_record(record)
  local format = #record >= 28 and string.byte(record, 17) or 0
  if format ~= 1 then return format > 1 and format < 16 end
  local size = 28 + string.byte(record, 26)
  if #record < size then return false end
  return #record >= size + string.byte(record, size - 1) * 256 + string.byte(record, size)
end

-- readable_changes(): facts, and as many events as they say (see lib/changes.lua).
local function readable_changes(packed)
  local parts = {pcall(cmsgpack.unpack, packed)}
  local facts = parts[2]
  return parts[1] and type(facts) == 'table' and type(facts[4]) == 'number' and #parts == 2 + facts[4]
end

-- readable_aside(), readable_letter(): of a job that is set aside, and of a dead letter.
local function readable_aside(packed)
  local whole, facts = pcall(cmsgpack.unpack, packed)
  return whole and type(facts) == 'table' and type(facts[1]) == 'number' and type(facts[5]) == 'string'
end

local function readable_letter(packed)
  local whole, letter = pcall(cmsgpack.unpack, packed)
  return whole and type(letter) == 'table' and type(letter[1]) == 'string' and type(letter[2]) == 'string'
end
