-- A queue that is deleted and created again under its name is another incarnation ('i' in meta, absent for the first).
-- compared(): below 0 if a partition belongs to an earlier one than the caller's topology, above 0 if to a later one.
local function compared(known, caller)
  return tonumber(known or 1) - tonumber(caller)
end

local function incarnate(caller)
  if caller ~= '1' then redis.call('HSET', META, 'i', caller) end
end
