-- RELEASE: hand leased jobs back without costing an attempt.
--
-- KEYS  1 meta hash, 2-4 ready lists of lanes 0-2, 5 retry zset, 6 leased zset, 7 lease hash, 8 mut hash,
--       9 suspects list, 10 alone list; standalone form also: 11 hot zset, 12 due zset
-- ARGV  1 label "version:partition", 2 msgpack [key, token, delay ms, note, ...], at most 250; delay 0: head of its
--       lane (a suspect: of its list); note, unless '': kept in the job's history
-- Returns {refused elements (indexes from 0), became ready (0/1), earliest waiting ms or -1, elements that were not dealt
--          with, from the first: the last ones that lib/fitting.lua lets through were; the caller sends the others again}
-- Cost  O(jobs log n + bytes of histories). Called by workers that stop, and for jobs that ask to be put off.
local META, R0, R1, R2, RETRY, LEASED, LEASE, MUT, SUSPECTS, ALONE = unpack(KEYS, 1, 10)
local HOT, DUE = KEYS[11], KEYS[12]
local LABEL = ARGV[1]
local WAITING = {SUSPECTS, ALONE}
local LANES = {['0'] = R0, ['1'] = R1, ['2'] = R2}
--@include clock
--@include changes
--@include leased
--@include fitting
--@include hints
--@include reopen

local batch = cmsgpack.unpack(ARGV[2])
local ids, keys, positions, refused = held(batch, 4)
if #ids == 0 then return {refused, 0, -1, 0} end
-- From the last one, so that what is sent again then comes in front of it.
local backwards = {}
for n, id in ipairs(ids) do backwards[#ids + 1 - n] = id end
local first = #ids + 1 - fitting(backwards, 250, function(n) return #batch[positions[#ids + 1 - n] + 3] end)
local left = first > 1 and (positions[first] - 1) / 4 or 0
while refused[1] and refused[1] < left do table.remove(refused, 1) end
local meta = redis.call('HMGET', META, 't', 'hist')
local now = server_now(meta[1])
local facts = redis.call('EXISTS', MUT) == 1 and redis.call('HMGET', MUT, unpack(ids, first)) or {}
redis.call('ZREM', LEASED, unpack(keys, first))
redis.call('HDEL', LEASE, unpack(ids, first))
local woke, earliest, heads = 0, -1, 0
for n = #ids, first, -1 do -- backwards, so that the first of the batch is the first of its lane
  local id, i = ids[n], positions[n]
  local delay, note, packed = batch[i + 2], batch[i + 3], facts[n + 1 - first]
  -- A run that puts itself off has ended by itself, so its job is no longer a suspect.
  local suspicion = packed and facts_of(packed)[6] or 0
  if note ~= '' or (suspicion > 0 and delay > 0) then
    local event = {status = note ~= '' and note or 'put off', now = now, token = batch[i + 1], error = ''}
    if delay > 0 then event.cleared, event.survived = true, true end
    redis.call('HSET', MUT, id, (changed(packed, event, meta[2])))
  end
  if delay > 0 then
    redis.call('ZADD', RETRY, now + delay, keys[n])
    if earliest < 0 or now + delay < earliest then earliest = now + delay end
  elseif suspicion > 0 then
    redis.call('LPUSH', WAITING[suspicion], keys[n])
    woke, heads = 1, heads + 1
  else
    if redis.call('LPUSH', LANES[string.sub(keys[n], 1, 1)], id) == 1 then woke = 1 end
    heads = heads + 1
  end
end
redis.call('HSET', META, 't', now)
if heads > 0 then redis.call('HINCRBY', META, 'shifts', 1) end -- see lib/anchors.lua
if woke == 1 then hint_ready(now) end
if earliest >= 0 then hint_due(earliest) end
if reopen(#ids + 1 - first) == 1 then woke = 1 end
return {refused, woke, earliest, left}
