-- FENCE: a partition obeys a leader from now on.
--
-- KEYS  1 meta hash, 2-4 ready lists of lanes 0-2, 5 suspects list, 6 alone list;
--       standalone form also: 7 hot zset, 8 due zset
-- ARGV  1 label "version:partition", 2 epoch, 3 nonce, 4 incarnation of the leader
-- Returns {'ok', jobs are ready (0/1)} or {'fenced', epoch of a newer leader} and nothing was changed
-- Cost  O(1). Called by a new leader of a queue in which only the leader runs jobs.
local META, R0, R1, R2, SUSPECTS, ALONE = unpack(KEYS, 1, 6)
local HOT, DUE = KEYS[7], KEYS[8]
local LABEL = ARGV[1]
--@include clock
--@include incarnation
--@include fence
--@include hints

local newer = newer_leader(ARGV[2], ARGV[3], ARGV[4])
if newer then return {'fenced', newer} end
if redis.call('EXISTS', R0, R1, R2, SUSPECTS, ALONE) == 0 then return {'ok', 0} end
-- The one before may have taken the hint.
hint_ready(server_now(redis.call('HGET', META, 't')))
return {'ok', 1}
