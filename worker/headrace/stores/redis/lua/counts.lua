-- COUNTS: sizes of the partition's indexes, its state, and facts of its drain, in one read-only step.
--
-- KEYS  1 meta hash, 2-4 ready lists of lanes 0-2, 5 scheduled zset, 6 retry zset, 7 leased zset, 8 jobs hash,
--       9 park zset, 10 moving hash, 11 arrived hash, 12 dead zset, 13 suspects list, 14 alone list
-- ARGV  none
-- Returns see lib/counts.lua
-- Cost  O(1). Called by the operator and the command line.
local META, R0, R1, R2, SCHEDULED, RETRY, LEASED, JOBS, PARK, MOVING, ARRIVED, DEAD, SUSPECTS, ALONE = unpack(KEYS)
--@include clock
--@include counts

return counts()
