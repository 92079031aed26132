-- PROMOTE_DUE: at most 500 jobs whose time has come become ready. Claims do the same in passing.
--
-- KEYS  1 meta hash, 2-4 ready lists of lanes 0-2, 5 scheduled zset, 6 retry zset
--       standalone form also: 7 hot zset, 8 due zset
-- ARGV  1 label "version:partition"
-- Returns how many
-- Cost  O(500 log n). Called by housekeeping.
local META, R0, R1, R2, SCHEDULED, RETRY = unpack(KEYS, 1, 6)
local HOT, DUE = KEYS[7], KEYS[8]
local LABEL = ARGV[1]
--@include clock
--@include ready
--@include promote_due
--@include hints

local now = server_now(redis.call('HGET', META, 't'))
local moved = promote_due(now)
if moved > 0 then
  redis.call('HSET', META, 't', now)
  hint_ready(now)
end
return moved
