-- UNPARK: jobs that wait by type become ready, for the types that a worker knows.
--
-- KEYS  1 meta hash, 2-4 ready lists of lanes 0-2, 5 park zset
--       standalone form also: 6 hot zset, 7 due zset, 8 parked zset of the queue
-- ARGV  1 label "version:partition", 2 msgpack [type, ...], at most 1,000
-- Returns {how many became ready, others are still parked (0/1)}; at most 1,000, so it is called until the first is 0
-- Cost  O(types + jobs log n); O(1) where nothing is parked. Called by each worker when it starts and now and then.
local META, R0, R1, R2, PARK = unpack(KEYS, 1, 5)
local HOT, DUE, PARKED = KEYS[6], KEYS[7], KEYS[8]
local LABEL = ARGV[1]
--@include clock
--@include ready
--@include hints

if redis.call('EXISTS', PARK) == 0 then
  if PARKED then redis.call('ZREM', PARKED, LABEL) end -- one that an audit has raised too late
  return {0, 0}
end
local freed = {}
for _, kind in ipairs(cmsgpack.unpack(ARGV[2])) do
  local parked = redis.call('ZRANGEBYLEX', PARK, '[' .. kind .. '\0', '(' .. kind .. '\1', 'LIMIT', 0, 1000 - #freed)
  for _, member in ipairs(parked) do
    -- Checked before it is removed: an error afterwards would not bring it back.
    if string.find(member, '^[012]', #kind + 2) and redis.call('ZREM', PARK, member) == 1 then
      freed[#freed + 1] = string.sub(member, #kind + 2)
    end
  end
  if #freed >= 1000 then break end
end
local left = redis.call('EXISTS', PARK)
if PARKED and left == 0 then redis.call('ZREM', PARKED, LABEL) end
if #freed > 0 then
  push_ready(freed)
  hint_ready(server_now(redis.call('HGET', META, 't')))
end
return {#freed, left}
