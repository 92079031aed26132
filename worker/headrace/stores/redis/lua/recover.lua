-- RECOVER: at most 100 jobs whose lease ended become ready again. Claims do the same in passing.
--
-- KEYS  1 meta hash, 2-4 ready lists of lanes 0-2, 5 leased zset, 6 lease hash, 7 mut hash
--       standalone form also: 8 hot zset, 9 due zset
-- ARGV  1 label "version:partition"
-- Returns how many
-- Cost  O(100 log n). Called by housekeeping.
local META, R0, R1, R2, LEASED, LEASE, MUT = unpack(KEYS, 1, 7)
local HOT, DUE = KEYS[8], KEYS[9]
local LABEL = ARGV[1]
--@include clock
--@include changes
--@include ready
--@include recover
--@include hints

local now = server_now(redis.call('HGET', META, 't'))
local recovered = recover_expired(now)
if recovered > 0 then
  redis.call('HSET', META, 't', now)
  hint_ready(now)
end
return recovered
