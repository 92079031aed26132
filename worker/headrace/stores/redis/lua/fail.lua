-- FAIL: record failed runs; each job waits for its retry, or becomes a dead letter. It did not kill its process, so it
-- is no longer a suspect.
--
-- KEYS  1 meta hash, 2-4 ready lists of lanes 0-2, 5 retry zset, 6 leased zset, 7 lease hash, 8 jobs hash, 9 mut hash,
--       10 dead zset, 11 dead letters hash; standalone form also: 12 hot zset, 13 due zset
-- ARGV  1 label "version:partition", 2 msgpack [key, token, delay ms or -1 = dead, status, error, ...], at most 250
-- Returns {refused elements (indexes from 0), earliest retry ms or -1, jobs that a limit held back are ready (0/1), elements
--          that were dealt with, from the first: as many as lib/fitting.lua says; the caller sends the others again}
-- Cost  O(failures log n + bytes). Called by workers.
local META, R0, R1, R2, RETRY, LEASED, LEASE, JOBS, MUT, DEAD, LETTERS = unpack(KEYS, 1, 11)
local HOT, DUE = KEYS[12], KEYS[13]
local LABEL = ARGV[1]
--@include clock
--@include changes
--@include bury
--@include trim_dead
--@include leased
--@include fitting
--@include letter_weight
--@include first_part
--@include hints
--@include reopen

local batch = cmsgpack.unpack(ARGV[2])
local ids, keys, positions, refused = held(batch, 5)
if #ids == 0 then return {refused, -1, 0, #batch / 5} end
local fit = fitting(ids, 250, function(n, id)
  local i = positions[n]
  return #batch[i + 4] + (batch[i + 2] < 0 and letter_weight(id) or 0)
end)
local done = first_part(fit, 5, batch, ids, keys, positions, refused)
local meta = redis.call('HMGET', META, 't', 'hist', 'deadmax')
local now = server_now(meta[1])
local facts = redis.call('HMGET', MUT, unpack(ids))
redis.call('ZREM', LEASED, unpack(keys))
redis.call('HDEL', LEASE, unpack(ids))
local earliest, died = -1, 0
for n, id in ipairs(ids) do
  local i = positions[n]
  local delay = batch[i + 2]
  local event = {attempts = 1, cleared = true, status = batch[i + 3], now = now, token = batch[i + 1], error = batch[i + 4]}
  local after = changed(facts[n], event, meta[2])
  if delay < 0 then
    bury(id, after, now)
    died = died + 1
  else
    redis.call('HSET', MUT, id, after)
    redis.call('ZADD', RETRY, now + delay, keys[n])
    if earliest < 0 or now + delay < earliest then earliest = now + delay end
  end
end
redis.call('HSET', META, 't', now)
redis.call('HINCRBY', META, 'failed', #ids)
if died > 0 then trim_dead(meta[3], died + 100) end
if earliest >= 0 then hint_due(earliest) end
return {refused, earliest, reopen(#ids), done}
