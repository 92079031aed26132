-- pop_lanes(wanted, seq): up to `wanted` ready jobs as keys, with weights 7 : 2 : 1 for lanes 0, 1, 2. What a lane does not
-- use falls to the others, and small claims begin with another lane now and then, so that none starves.
local function pop_lanes(wanted, seq)
  local keys = {}
  local lists = {R0, R1, R2}
  local names = {'0', '1', '2'} -- a number would be formatted for every job
  local function take(n, most)
    most = math.min(most, wanted - #keys)
    if most <= 0 then return end
    for _, id in ipairs(redis.call('LPOP', lists[n], most) or {}) do keys[#keys + 1] = names[n] .. id end
  end
  if redis.call('EXISTS', R0, R2) == 0 then
    take(2, wanted)
    return keys
  end
  if wanted >= 10 then
    take(1, math.floor(wanted * 0.7))
    take(2, math.floor(wanted * 0.2))
    take(3, math.floor(wanted * 0.1))
  elseif seq % 10 == 0 then
    take(3, wanted)
  elseif seq % 10 == 3 or seq % 10 == 6 then
    take(2, wanted)
  end
  for n = 1, 3 do take(n, wanted) end
  return keys
end
