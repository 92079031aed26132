-- SET_ASIDE: waiting jobs of a draining partition are taken out of their indexes, to move to another version. At maxmemory
-- none is that is not aside already: most likely it could not be adopted, and here it can still be claimed.
--
-- KEYS  1 meta hash, 2-4 ready lists of lanes 0-2, 5 scheduled zset, 6 retry zset, 7 jobs hash, 8 mut hash, 9 park zset,
--       10 moving hash, 11 suspects list, 12 alone list; standalone form also: 13 parked zset of the queue
-- ARGV  1 epoch, 2 nonce, 3 incarnation of the leader, 4 version that they move to, 5 jobs to be aside at most, 100 at most,
--       6 label "version:partition"
-- Returns {'ok', msgpack [key, version it moves to, place, at ms, type, record, changes or '', ...] of all that are aside,
--          jobs are parked (0/1)}
--         {'fenced', epoch of a newer leader} and nothing was changed
--         About 256 KiB of records at most; fewer jobs are aside then.
-- Cost  O(jobs log n). Called by headrace.migration.
local META, R0, R1, R2, SCHEDULED, RETRY, JOBS, MUT, PARK, MOVING, SUSPECTS, ALONE = unpack(KEYS, 1, 12)
local PARKED, LABEL = KEYS[13], ARGV[6]
--@include incarnation
--@include fence
--@include waiting_jobs

-- The first write is an addition, which is refused at maxmemory.
local room = type(redis.pcall('HSET', MOVING, '', '')) == 'number'
if room then redis.call('HDEL', MOVING, '') end
local newer = newer_leader(ARGV[1], ARGV[2], ARGV[3])
if newer then return {'fenced', newer} end
if redis.call('HGET', META, 's') ~= 'D' then return {'ok', '', 1} end
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

local function full() return number >= limit or size >= 262144 end
local function move(id, place, at, kind, lane)
  local facts = {tonumber(ARGV[4]), place, at, kind, lane}
  redis.call('HSET', MOVING, id, cmsgpack.pack(facts))
  add(id, facts)
end
if room then take_waiting(full, move) end
local left = redis.call('EXISTS', PARK)
if PARKED and left == 0 then redis.call('ZREM', PARKED, LABEL) end
return {'ok', number > 0 and cmsgpack.pack(jobs) or '', left}
