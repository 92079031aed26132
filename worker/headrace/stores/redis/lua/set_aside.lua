-- SET_ASIDE: waiting jobs of a draining partition are taken out of their indexes, to move to another version.
--
-- KEYS  1 meta hash, 2-4 ready lists of lanes 0-2, 5 scheduled zset, 6 retry zset, 7 jobs hash, 8 mut hash, 9 park zset,
--       10 moving hash, 11 suspects list, 12 alone list
-- ARGV  1 epoch, 2 nonce, 3 incarnation of the leader, 4 version that they move to, 5 jobs to be aside at most, 100 at most
-- Returns {'ok', msgpack [key, version it moves to, place, at ms, type, record, changes or '', ...]} of all that are aside
--         {'fenced', epoch of a newer leader} and nothing was changed
--         About 2 MiB of records at most; fewer jobs are aside then.
-- Cost  O(jobs log n). Called by headrace.migration.
local META, R0, R1, R2, SCHEDULED, RETRY, JOBS, MUT, PARK, MOVING, SUSPECTS, ALONE = unpack(KEYS)
--@include incarnation
--@include fence

local newer = newer_leader(ARGV[1], ARGV[2], ARGV[3])
if newer then return {'fenced', newer} end
if redis.call('HGET', META, 's') ~= 'D' then return {'ok', ''} end
local limit, size, jobs, number = math.min(tonumber(ARGV[5]), 100), 0, {}, 0

local function add(id, facts)
  local record = redis.call('HGET', JOBS, id) or ''
  local changes = redis.call('HGET', MUT, id) or ''
  size, number = size + #record + #changes, number + 1
  local to, place, at, kind, lane = unpack(facts)
  for _, part in ipairs({lane .. id, to, place, at, kind, record, changes}) do jobs[#jobs + 1] = part end
end

-- Never more than the limit, since only this script adds to it.
local aside = redis.call('HGETALL', MOVING)
for i = 1, #aside, 2 do add(aside[i], cmsgpack.unpack(aside[i + 1])) end

local function full() return number >= limit or size >= 2097152 end
local function move(id, place, at, kind, lane)
  local facts = {tonumber(ARGV[4]), place, at, kind, lane}
  redis.call('HSET', MOVING, id, cmsgpack.pack(facts))
  add(id, facts)
end
for n, list in ipairs({ALONE, SUSPECTS}) do
  while not full() do
    local key = redis.call('LPOP', list)
    if not key then break end
    move(string.sub(key, 2), n == 1 and 'alone' or 'suspect', 0, '', string.sub(key, 1, 1))
  end
end
for n, list in ipairs({R0, R1, R2}) do
  while not full() do
    local id = redis.call('LPOP', list)
    if not id then break end
    move(id, 'ready', 0, '', tostring(n - 1))
  end
end
for n, waiting in ipairs({RETRY, SCHEDULED}) do
  while not full() do
    local first = redis.call('ZPOPMIN', waiting)
    if #first == 0 then break end
    local key, at = first[1], tonumber(first[2])
    move(string.sub(key, 2), n == 1 and 'retry' or 'scheduled', at, '', string.sub(key, 1, 1))
  end
end
while not full() do
  local first = redis.call('ZPOPMIN', PARK)
  if #first == 0 then break end
  local kind, key = string.match(first[1], '^(%Z*)%z(.*)$')
  move(string.sub(key, 2), 'parked', 0, kind, string.sub(key, 1, 1))
end
return {'ok', number > 0 and cmsgpack.pack(jobs) or ''}
