-- TRIM_PARKED: of the jobs that wait for one type those beyond a number, the first ones, and those beyond an age become
-- dead letters; a page of them at a time.
--
-- KEYS  1 meta hash, 2 park zset, 3 jobs hash, 4 mut hash, 5 dead zset, 6 dead letters hash
--       standalone form also: 7 parked zset of the queue
-- ARGV  1 label "version:partition", 2 type, 3 jobs that may wait, -1: any number, 4 ms since they were due that they may
--       wait, -1: for ever, 5 lane byte + id after which to go on, '' for the beginning, 6 reason of those beyond the
--       number, 7 reason of those beyond the age, 8 jobs at most, up to 250,
--       perhaps 9 epoch, 10 nonce, 11 incarnation of the leader
-- Looks at as many as lib/fitting.lua lets, since it may bury them all.
-- Returns {how many died, lane byte + id after which to go on or '' at the end, others are still parked (0/1)}
--         {'fenced', epoch of a newer leader} and nothing was changed
-- Cost  O(jobs log n + bytes). Called by the leader, now and then, where a worker's settings have such a limit.
local META, PARK, JOBS, MUT, DEAD, LETTERS = unpack(KEYS, 1, 6)
local PARKED = KEYS[7]
local LABEL, KIND = ARGV[1], ARGV[2]
--@include clock
--@include incarnation
--@include fence
--@include changes
--@include bury
--@include trim_dead
--@include give_up
--@include fitting
--@include letter_weight

if ARGV[9] then
  local newer = newer_leader(ARGV[9], ARGV[10], ARGV[11])
  if newer then return {'fenced', newer} end
end
local keep, age, most = tonumber(ARGV[3]), tonumber(ARGV[4]), math.min(tonumber(ARGV[8]), 250)
local first, last = '[' .. KIND .. '\0', '(' .. KIND .. '\1'
local over = keep < 0 and 0 or redis.call('ZLEXCOUNT', PARK, first, last) - keep
if ARGV[5] ~= '' then first = '(' .. KIND .. '\0' .. ARGV[5] end
local page = (over > 0 or age >= 0) and redis.call('ZRANGEBYLEX', PARK, first, last, 'LIMIT', 0, most) or {}
local buried, after = 0, ''
if #page > 0 then
  local meta = redis.call('HMGET', META, 't', 'hist', 'deadmax')
  local now = server_now(meta[1])
  local ids = {}
  for n, member in ipairs(page) do ids[n] = string.sub(member, #KIND + 3) end
  local looked = fitting(ids, most, function(_, id) return letter_weight(id) end)
  for n = 1, looked do
    local id, member = ids[n], page[n]
    if string.find(member, '^[012]', #KIND + 2) then
      local record = age >= 0 and redis.call('HGET', JOBS, id)
      local old = false
      if record then
        local created, run_at = struct.unpack('>I8I8', record)
        old = math.max(created, run_at) + age < now
      end
      if old or buried < over then
        give_up(KIND, member, old and ARGV[7] or ARGV[6], now, meta[2])
        buried = buried + 1
      end
    end
  end
  if #page == most or looked < #page then after = string.sub(page[looked], #KIND + 2) end
  if buried > 0 then
    redis.call('HSET', META, 't', now)
    trim_dead(meta[3], buried + 100)
  end
end
local left = redis.call('EXISTS', PARK)
if PARKED and left == 0 then redis.call('ZREM', PARKED, LABEL) end
return {buried, after, left}
