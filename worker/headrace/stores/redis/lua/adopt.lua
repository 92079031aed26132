-- ADOPT: insert jobs that are set aside in a partition of an older version, each once.
--
-- KEYS  1 meta hash, 2-4 ready lists of lanes 0-2, 5 scheduled zset, 6 retry zset, 7 jobs hash, 8 mut hash, 9 park zset,
--       10 arrived hash, 11 suspects list, 12 alone list;
--       standalone form also: 13 hot zset, 14 due zset, 15 parked zset, 16 wakes stream of the queue
-- ARGV  1 label "version:partition", 2 epoch, 3 nonce, 4 incarnation of the leader, 5 partition count that the caller
--       believes in, 6 label of the partition where they are aside,
--       7 msgpack [key, place, at ms, type, record, changes or '', ...], at most 100 jobs,
--       8 name of the queue
-- Returns {'ok', [is or was here (0/1), ...], became ready (0/1), earliest waiting ms or -1, now if any is parked, else 0,
--          the partition was asleep and somebody has to say so (0/1)}
--         {'fenced', epoch of a newer leader} and nothing was changed
-- Cost  O(jobs log n). Called by headrace.migration.
local META, R0, R1, R2, SCHEDULED, RETRY, JOBS, MUT, PARK, ARRIVED = unpack(KEYS, 1, 10)
local SUSPECTS, ALONE = KEYS[11], KEYS[12]
local HOT, DUE, PARKED, WAKES = KEYS[13], KEYS[14], KEYS[15], KEYS[16]
local LABEL = ARGV[1]
local LANES = {['0'] = R0, ['1'] = R1, ['2'] = R2}
--@include clock
--@include incarnation
--@include fence
--@include hints
--@include wake

local newer = newer_leader(ARGV[2], ARGV[3], ARGV[4])
if newer then return {'fenced', newer} end
local meta = redis.call('HMGET', META, 's', 'n', 't', 'asleep')
local takes = meta[1] == 'A' and meta[2] == ARGV[5]
local now = server_now(meta[3])
local batch = cmsgpack.unpack(ARGV[7])
local adopted, inserted, woke, earliest, parked, big = {}, 0, 0, -1, 0, false
for i = 1, #batch, 6 do
  local key, place, at, kind, record, changes = unpack(batch, i, i + 5)
  local id = string.sub(key, 2)
  -- An id is live once: should a job with it be here, it is this one.
  local known = redis.call('HEXISTS', ARRIVED, id) == 1 or (takes and redis.call('HEXISTS', JOBS, id) == 1)
  adopted[#adopted + 1] = (known or takes) and 1 or 0
  if takes and not known then
    inserted = inserted + 1
    redis.call('HSET', JOBS, id, record)
    big = big or #record > 1000
    redis.call('HSET', ARRIVED, id, ARGV[6])
    if changes ~= '' then redis.call('HSET', MUT, id, changes) end
    if place == 'ready' then
      if redis.call('RPUSH', LANES[string.sub(key, 1, 1)], id) == 1 then woke = 1 end
    elseif place == 'suspect' then
      redis.call('RPUSH', SUSPECTS, key)
      woke = 1
    elseif place == 'alone' then
      redis.call('RPUSH', ALONE, key)
      woke = 1
    elseif place == 'parked' then
      redis.call('ZADD', PARK, 0, kind .. '\0' .. key)
      parked = now
    else
      if place == 'retry' then redis.call('ZADD', RETRY, at, key) else redis.call('ZADD', SCHEDULED, at, key) end
      if earliest < 0 or at < earliest then earliest = at end
    end
  end
end
if big then redis.call('HSET', META, 'big', 1) end
if woke == 1 then hint_ready(now) end
if earliest >= 0 then hint_due(earliest) end
if PARKED and parked > 0 then redis.call('ZADD', PARKED, now, LABEL) end
local roused = 0
if meta[4] and inserted > 0 then
  redis.call('HDEL', META, 'asleep')
  wake(ARGV[8])
  roused = 1
end
return {'ok', adopted, woke, earliest, parked, roused}
