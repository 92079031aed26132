-- CLAIMED: what a claim tells about its partition's hints, in the Cluster form. A later time replaces the one that was read
-- before the claim, and no other: a blind one would lose the wake of a job that came in between.
--
-- KEYS  1 hot zset, 2 due zset, 3 alarm hash, 4 topology string, 5 grave string
-- ARGV  1 label "version:partition", 2 worker, 3 more jobs are ready (0/1), 4 next due ms or -1, 5 the due time read before
--       the claim, or ''
-- Returns {label of the next hot partition or '', ms for the alarm or -1}; nothing is changed if the queue was deleted
-- Cost  O(log n). Called by workers after each claim.
local HOT, DUE, ALARM, TOPOLOGY, GRAVE = unpack(KEYS)
local LABEL = ARGV[1]
--@include buried
if buried() then return {'', -1} end
--@include clock
--@include alarm

redis.call('ZREM', HOT, '') -- a removal first: at maxmemory a ZADD alone would be refused
local now = server_now()
local at = tonumber(ARGV[4])
if ARGV[3] == '1' then
  redis.call('ZADD', HOT, now, LABEL)
  redis.call('ZADD', DUE, 'LT', now + 2000, LABEL)
elseif (redis.call('ZSCORE', DUE, LABEL) or '') == ARGV[5] then
  if at >= 0 then redis.call('ZADD', DUE, at, LABEL) else redis.call('ZREM', DUE, LABEL) end
elseif at >= 0 then
  redis.call('ZADD', DUE, 'LT', at, LABEL)
end
local ms = ARGV[3] == '1' and -1 or alarm(now, ARGV[2])
return {redis.call('ZRANGE', HOT, 0, 0)[1] or '', ms}
