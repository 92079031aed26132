-- BURY_WAITING: jobs that wait in a draining partition become dead letters.
--
-- KEYS  1 meta hash, 2-4 ready lists of lanes 0-2, 5 scheduled zset, 6 retry zset, 7 jobs hash, 8 mut hash, 9 park zset,
--       10 dead zset, 11 dead letters hash, 12 suspects list, 13 alone list;
--       standalone form also: 14 parked zset of the queue
-- ARGV  1 label "version:partition", 2 reason, 3 jobs at most, up to 100, perhaps 4 epoch, 5 nonce, 6 incarnation of the leader
-- Returns {how many died, others are still parked (0/1)}
--         {'fenced', epoch of a newer leader} and nothing was changed
-- Until they have 256 KiB of records and histories (see lib/letter_weight.lua).
-- Cost  O(jobs log n + bytes). Called by headrace.migration when a drain has timed out, until the first is 0.
local META, R0, R1, R2, SCHEDULED, RETRY, JOBS, MUT, PARK, DEAD = unpack(KEYS, 1, 10)
local LETTERS, SUSPECTS, ALONE, PARKED = KEYS[11], KEYS[12], KEYS[13], KEYS[14]
local LABEL = ARGV[1]
--@include clock
--@include incarnation
--@include fence
--@include changes
--@include bury
--@include trim_dead
--@include waiting_jobs
--@include letter_weight

if ARGV[4] then
  local newer = newer_leader(ARGV[4], ARGV[5], ARGV[6])
  if newer then return {'fenced', newer} end
end
local meta = redis.call('HMGET', META, 's', 't', 'hist', 'deadmax')
if meta[1] ~= 'D' then return {0, 1} end
local now, most, buried, bytes = server_now(meta[2]), math.min(tonumber(ARGV[3]), 100), 0, 0
take_waiting(function() return buried >= most or bytes >= 262144 end, function(id)
  buried = buried + 1
  bytes = bytes + redis.call('HSTRLEN', MUT, id) + letter_weight(id)
  local event = {cleared = true, status = 'drain timed out', now = now, token = '', error = ARGV[2]}
  bury(id, (changed(redis.call('HGET', MUT, id), event, meta[3])), now)
end)
if buried > 0 then trim_dead(meta[4], buried + 100) end
local left = redis.call('EXISTS', PARK)
if PARKED and left == 0 then redis.call('ZREM', PARKED, LABEL) end
return {buried, left}
