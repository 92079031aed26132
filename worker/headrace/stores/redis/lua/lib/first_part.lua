-- first_part(number, width, batch, ids, keys, positions, refused): keeps the first `number` of the jobs that held() has
-- found (see lib/leased.lua). Returns how many elements of the batch that covers; the caller sends the others again.
local function first_part(number, width, batch, ids, keys, positions, refused)
  if number >= #ids then return #batch / width end
  local done = (positions[number + 1] - 1) / width
  for n = #ids, number + 1, -1 do ids[n], keys[n], positions[n] = nil, nil, nil end
  while #refused > 0 and refused[#refused] >= done do refused[#refused] = nil end
  return done
end
