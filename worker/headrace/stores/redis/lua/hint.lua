-- HINT: give a partition's hints in the Cluster form, where its script could not. The value in `due` always changes, so
-- that a worker that has claimed in between, and compares, does not take the new time away.
--
-- KEYS  1 hot zset, 2 due zset, 3 topology string, 4 grave string
-- ARGV  1 label "version:partition", 2 jobs became ready (0/1), 3 earliest time of a job that waits, ms, or -1
-- Returns nothing; nothing is changed if the queue was deleted
-- Cost  O(log n). Called by producers and workers after a script of the partition.
local HOT, DUE, TOPOLOGY, GRAVE = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local LABEL = ARGV[1]
--@include buried
if buried() then return end
--@include clock
--@include hints

redis.call('ZREM', HOT, '') -- a removal first: at maxmemory a ZADD alone would be refused
if ARGV[2] == '1' then
  local now = server_now()
  redis.call('ZADD', HOT, 'NX', now, LABEL)
  local due = tonumber(redis.call('ZSCORE', DUE, LABEL) or now + 2001)
  redis.call('ZADD', DUE, math.min(due - 1, now + 2000), LABEL)
end
local at = tonumber(ARGV[3])
if at >= 0 then hint_due(at) end
