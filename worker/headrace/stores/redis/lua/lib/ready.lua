-- push_ready(keys): appends jobs to the ready list of their lane (first byte of the key).
local LANES = {['0'] = R0, ['1'] = R1, ['2'] = R2}
local function push_ready(keys)
  local lanes = {['0'] = {}, ['1'] = {}, ['2'] = {}}
  for _, key in ipairs(keys) do
    local lane = lanes[string.sub(key, 1, 1)]
    lane[#lane + 1] = string.sub(key, 2)
  end
  for lane, ids in pairs(lanes) do
    if #ids > 0 then redis.call('RPUSH', LANES[lane], unpack(ids)) end
  end
end
