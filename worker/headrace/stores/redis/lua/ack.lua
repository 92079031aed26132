-- ACK: remove finished jobs that are leased under their token, and keep for a while what became of them, if wanted.
--
-- KEYS  1 meta hash, 2-4 ready lists of lanes 0-2, 5 leased zset, 6 lease hash, 7 jobs hash, 8 mut hash, 9 done stream
--       standalone form also: 10 hot zset, 11 due zset
-- ARGV  1 label "version:partition", 2 msgpack [key, token, ...], at most 1,000, 3 msgpack [id, type, attempt, result, ...]
--       of the same jobs, or '': nothing is kept of them, 4 worker
-- Returns {refused elements (indexes from 0), jobs that a limit held back are ready (0/1)}
-- Cost  O(acks). Called by workers when no claim of the partition is near; claims acknowledge in passing.
local META, R0, R1, R2, LEASED, LEASE, JOBS, MUT, DONE = unpack(KEYS, 1, 9)
local HOT, DUE = KEYS[10], KEYS[11]
local LABEL = ARGV[1]
--@include clock
--@include leased
--@include acks
--@include hints
--@include reopen
--@include finished_entry
--@include finished
--@include keep_finished

local finished, refused = settle_acks(ARGV[2])
if finished > 0 then
  redis.call('HINCRBY', META, 'done', finished)
  if ARGV[3] ~= '' then keep_finished(ARGV[3], finished, refused, ARGV[4], server_now(redis.call('HGET', META, 't'))) end
end
return {refused, reopen(finished)}
