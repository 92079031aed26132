-- PARKED: how many jobs wait for each type that no worker knew.
--
-- KEYS  1 park zset
-- ARGV  1 types at most
-- Returns [type, number, ...]
-- Cost  O(types log n). Called by the command line and by status.
local PARK = KEYS[1]
local found = {}
local from = '-'
while #found < tonumber(ARGV[1]) * 2 do
  local first = redis.call('ZRANGEBYLEX', PARK, from, '+', 'LIMIT', 0, 1)[1]
  if not first then break end
  local kind = string.sub(first, 1, string.find(first, '\0', 1, true) - 1)
  found[#found + 1] = kind
  found[#found + 1] = redis.call('ZLEXCOUNT', PARK, '[' .. kind .. '\0', '(' .. kind .. '\1')
  from = '[' .. kind .. '\1'
end
return found
