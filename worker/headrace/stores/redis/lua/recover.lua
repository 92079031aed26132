-- RECOVER: take back at most 100 jobs whose lease ended (see lib/recover.lua and lib/fitting.lua). Claims do the same in passing.
--
-- KEYS  1 meta hash, 2 leased zset, 3 lease hash, 4 jobs hash, 5 mut hash, 6 suspects list, 7 alone list,
--       8 dead zset, 9 dead letters hash; standalone form also: 10 hot zset, 11 due zset
-- ARGV  1 label "version:partition"
-- Returns how many
-- Cost  O(100 log n + bytes). Called by housekeeping.
local META, LEASED, LEASE, JOBS, MUT, SUSPECTS, ALONE, DEAD, LETTERS = unpack(KEYS, 1, 9)
local HOT, DUE = KEYS[10], KEYS[11]
local LABEL = ARGV[1]
--@include clock
--@include changes
--@include bury
--@include trim_dead
--@include fitting
--@include letter_weight
--@include recover
--@include hints

local meta = redis.call('HMGET', META, 't', 'crash')
local now = server_now(meta[1])
local recovered = recover_expired(now, tonumber(meta[2] or 3) or 3)
if recovered > 0 then
  redis.call('HSET', META, 't', now)
  hint_ready(now)
end
return recovered
