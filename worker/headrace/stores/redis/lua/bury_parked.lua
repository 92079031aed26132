-- BURY_PARKED: jobs that wait by type become dead letters, for a type that no worker will know again.
--
-- KEYS  1 meta hash, 2 park zset, 3 jobs hash, 4 mut hash, 5 dead zset, 6 dead letters hash
--       standalone form also: 7 parked zset of the queue
-- ARGV  1 label "version:partition", 2 type, 3 reason, 4 jobs at most, up to 250
-- As many as lib/fitting.lua lets.
-- Returns {how many died, others are still parked (0/1)}
-- Cost  O(jobs log n + bytes). Called by the command line, until the first is 0.
local META, PARK, JOBS, MUT, DEAD, LETTERS = unpack(KEYS, 1, 6)
local PARKED = KEYS[7]
local LABEL, KIND = ARGV[1], ARGV[2]
--@include clock
--@include changes
--@include bury
--@include trim_dead
--@include give_up
--@include fitting
--@include letter_weight

local most = math.min(tonumber(ARGV[4]), 250)
local parked = redis.call('ZRANGEBYLEX', PARK, '[' .. KIND .. '\0', '(' .. KIND .. '\1', 'LIMIT', 0, most)
local buried = 0
if #parked > 0 then
  local meta = redis.call('HMGET', META, 't', 'hist', 'deadmax')
  local now = server_now(meta[1])
  local ids = {}
  for n, member in ipairs(parked) do ids[n] = string.sub(member, #KIND + 3) end
  local fit = fitting(ids, most, function(_, id) return letter_weight(id) end)
  for n = 1, fit do if string.find(parked[n], '^[012]', #KIND + 2) then
    give_up(KIND, parked[n], ARGV[3], now, meta[2])
    buried = buried + 1
  end end
  redis.call('HSET', META, 't', now)
  trim_dead(meta[3], buried + 100)
end
local left = redis.call('EXISTS', PARK)
if PARKED and left == 0 then redis.call('ZREM', PARKED, LABEL) end
return {buried, left}
