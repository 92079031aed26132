-- cut_off(list, n): the elements from the n-th on, which are taken out of the list. Not by unpack, which fails beyond 8,000.
local function cut_off(list, n)
  local rest = {}
  for m = n, #list do rest[#rest + 1] = list[m] end
  for m = #list, n, -1 do list[m] = nil end
  return rest
end
