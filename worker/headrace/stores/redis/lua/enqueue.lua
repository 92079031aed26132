-- ENQUEUE: insert jobs into an active partition, each unless its id is live there.
--
-- KEYS  1 meta hash, 2-4 ready lists of lanes 0-2, 5 scheduled zset, 6 jobs hash, 7 moving hash, 8 seen zset
--       standalone form also: 9 hot zset, 10 due zset of the queue, 11 wakes stream of all queues
-- ARGV  1 label "version:partition", 2 partition count the caller believes in, 3 nonce of this call,
--       4 msgpack [key, when, body, ...]; when: 0 now, > 0 at that ms, < 0 after that many ms; at most 500 jobs,
--       5 queue, 6 incarnation of the queue that the caller knows
--       perhaps 7 a series, 8 the number of this call in it: nothing is changed if it is not above the highest applied
-- Returns {'ok', existing (indexes from 0), became ready where nothing was, or may have at an earlier try (0/1),
--          earliest waiting ms or -1,
--          the partition was asleep, or may have been at the first of several tries (0/1)}
--         {'full', jobs, limit} or {'held'}: refused by the queue's settings, nothing was changed
--         {'moved', absent | D | C | T | resized, successor topology or ''}: nothing was changed; resized: it is another
--         partition than the caller believes
-- Cost  O(jobs), plus O(log n) each for those that wait. Called by producers, through Store.enqueue.
local META, R0, R1, R2, SCHEDULED, JOBS, MOVING, SEEN = unpack(KEYS, 1, 8)
local HOT, DUE, WAKES = KEYS[9], KEYS[10], KEYS[11]
local LABEL, NONCE = ARGV[1], ARGV[3]
--@include clock
--@include incarnation
--@include tables

local meta = redis.call('HMGET', META, 's', 'n', 't', 'enq', 'succ', 'shut', 'len', 'rdy', 'asleep', 'i', 'big')
local age = compared(meta[10], ARGV[6])
if not meta[1] or (meta[1] ~= 'A' and age < 0) then return {'moved', 'absent', ''} end
if meta[1] ~= 'A' then return {'moved', meta[1], meta[5] or ''} end
if meta[2] ~= ARGV[2] or age ~= 0 then return {'moved', 'resized', ''} end
if redis.call('ZSCORE', SEEN, NONCE) then
  redis.call('PEXPIRE', SEEN, '10000') -- a write, also when memory is full: a wait for replicas is for the first try, too
  -- Perhaps nobody got the reply that asked for hints and said whether it was asleep. A hint too many costs one claim, which
  -- also finds out when the next job is due. In the standalone form the first try has done all of it.
  return {'ok', {}, 1, -1, 1}
end

local batch = cmsgpack.unpack(ARGV[4])
local once = ARGV[7] and 'once:' .. ARGV[7]
if once and tonumber(redis.call('HGET', META, once) or 0) >= tonumber(ARGV[8]) then
  local all = {}
  for n = 0, #batch / 3 - 1 do all[#all + 1] = n end
  return {'ok', all, 0, -1, 0}
end
if #batch > 1500 then return redis.error_reply('HEADRACE at most 500 jobs in one enqueue call') end
local now = server_now(meta[3])
local NOW = string.format('%d', now)
local ids = {}
for n = 1, #batch / 3 do ids[n] = string.sub(batch[n * 3 - 2], 2) end
if #ids == 0 then return {'ok', {}, 0, -1, 0} end
-- Where records may be large, those that live are not read to see that they do.
local live = {}
if meta[11] then
  for n, id in ipairs(ids) do live[n] = redis.call('HEXISTS', JOBS, id) == 1 end
else
  live = redis.call('HMGET', JOBS, unpack(ids))
end
local moving = redis.call('EXISTS', MOVING) == 1 and redis.call('HMGET', MOVING, unpack(ids)) or {}

local existing, records, waiting, fresh = {}, {}, {}, {}
local lanes = {{}, {}, {}}
local added, delayed, earliest, big = 0, 0, -1, meta[11]
local at_once = struct.pack('>I8I8', now, now)
for n, id in ipairs(ids) do
  if live[n] or moving[n] or fresh[id] then
    existing[#existing + 1] = n - 1
  else
    fresh[id] = true
    local key, at, times = batch[n * 3 - 2], batch[n * 3 - 1], at_once
    if at ~= 0 then
      if at < 0 then at = now - at end
      times = struct.pack('>I8I8', now, at)
    end
    records[added * 2 + 1], records[added * 2 + 2] = id, times .. batch[n * 3]
    added = added + 1
    big = big or #batch[n * 3] > 1000
    if at <= now then
      local lane = lanes[string.byte(key) - 47]
      lane[#lane + 1] = id
    else
      waiting[delayed * 2 + 1], waiting[delayed * 2 + 2] = string.format('%d', at), key
      delayed = delayed + 1
      if earliest < 0 or at < earliest then earliest = at end
    end
  end
end

if meta[6] == '1' and added > 0 then return {'held'} end
if meta[7] and meta[7] ~= '' and added > 0 then
  local length = redis.call('HLEN', JOBS)
  if length + added > tonumber(meta[7]) then return {'full', length, tonumber(meta[7])} end
end
local woke, roused = 0, 0
if added > 0 then
  if added >= 8 and #records[2] <= 64 and (now % 16 == 0 or redis.call('EXISTS', JOBS) == 0) then
    redis.call('HSET', JOBS, LARGE, '', unpack(records))
    redis.call('HDEL', JOBS, LARGE)
  else
    redis.call('HSET', JOBS, unpack(records))
  end
  for n, list in ipairs({R0, R1, R2}) do
    local pushed = lanes[n]
    if #pushed > 0 and redis.call('RPUSH', list, unpack(pushed)) == #pushed then woke = 1 end
  end
  if delayed > 0 then redis.call('ZADD', SCHEDULED, unpack(waiting)) end
end
redis.call('ZADD', SEEN, NOW, NONCE)
local old = redis.call('ZRANGEBYSCORE', SEEN, '-inf', string.format('%d', now - 10000), 'LIMIT', '0', '32')
if #old > 0 then redis.call('ZREM', SEEN, unpack(old)) end
redis.call('PEXPIRE', SEEN, '10000') -- where producers have gone silent nobody trims
redis.call('HSET', META, 't', NOW, 'enq', string.format('%d', (meta[4] or 0) + added),
  'rdy', string.format('%d', (meta[8] or 0) + added - delayed))
if once then redis.call('HSET', META, once, ARGV[8]) end
if big and not meta[11] then redis.call('HSET', META, 'big', 1) end
if woke == 1 or earliest > 0 then
--@include hints
  if woke == 1 then hint_ready(now) end
  if earliest > 0 then hint_due(earliest) end
end
if meta[9] and added > 0 then
--@include wake
  redis.call('HDEL', META, 'asleep')
  wake(ARGV[5])
  roused = 1
end
return {'ok', existing, woke, earliest, roused}
