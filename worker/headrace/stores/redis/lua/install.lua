-- INSTALL and SETTLE: make a partition agree with a topology that is about to list it (install) or does (settle).
--
-- KEYS  1 meta hash, 2-4 ready lists of lanes 0-2, 5 suspects list, 6 alone list, 7 scheduled zset, 8 retry zset,
--       9 leased zset; standalone form also: 10 hot zset, 11 due zset
-- ARGV  1 epoch of the topology, 2 partition count of the version, 3 "install" | "settle", 4 create if absent (0/1),
--       5 label "version:partition", 6 incarnation of the queue, 7 stamp of the topology ("epoch:digest"), then the
--       settings as fields and values: hold (claims: '1' | ''), shut (enqueues: '1' | ''), only (a leader claims:
--       '1' | ''), rate (jobs/s), cap (leased at once), len (jobs), crash (limit), deadmax (dead letters), hist (events of
--       a job), keep (finished jobs: number:bytes:ms); '' where there is none
-- Returns {state before: absent | A | D | C | T, claims were held and may go on, or a foreign hand has deleted the meta of a
--         partition with jobs (0/1), its epoch if it is ahead, else 0}
--         absent, or left by an earlier queue of this name: created active if asked.
--         A: overwritten if its epoch is older (settle: or equal). D: the same, settings only.
--         A or D of a newer epoch, or of another topology of the same one: ahead, untouched.
--         C, T, or of a later queue of this name: untouched.
-- Cost  O(1). Called by whoever promotes or configures, through headrace.lifecycle.
local META, R0, R1, R2, SUSPECTS, ALONE, SCHEDULED, RETRY, LEASED = unpack(KEYS, 1, 9)
local HOT, DUE = KEYS[10], KEYS[11]
local LABEL = ARGV[5]
--@include clock
--@include tables
--@include hints
--@include incarnation

local epoch = tonumber(ARGV[1])
local meta = redis.call('HMGET', META, 's', 'e', 'of', 't', 'i')
local state, known, of = meta[1], tonumber(meta[2] or 0), meta[3] or ''
local age = compared(meta[5], ARGV[6])
if not state or age < 0 then
  if ARGV[4] == '1' then
    -- A removal first, here and below: at maxmemory the HSET alone would be refused.
    if state then redis.call('UNLINK', META) else redis.call('HDEL', META, '') end
    redis.call('HSET', META, LARGE, '', 's', 'A', 'e', ARGV[1], 'n', ARGV[2], 'of', ARGV[7], 'asleep', 1, unpack(ARGV, 8))
    redis.call('HDEL', META, LARGE)
    incarnate(ARGV[6])
    if redis.call('EXISTS', R0, R1, R2, SUSPECTS, ALONE, SCHEDULED, RETRY, LEASED) > 0 then
      hint_ready(server_now())
      return {'absent', 1, 0}
    end
  end
  return {'absent', 0, 0}
end
if age > 0 or (state ~= 'A' and state ~= 'D') then return {state, 0, 0} end
-- A stamp of another epoch was left there by a release that knows of none, and says nothing.
local another = known == epoch and of ~= ARGV[7] and string.sub(of, 1, #ARGV[1] + 1) == ARGV[1] .. ':'
if known > epoch or another then return {state, 0, known} end
if known == epoch and ARGV[3] == 'install' then return {state, 0, 0} end
redis.call('HDEL', META, '')
if state == 'A' then
  redis.call('HSET', META, 'e', ARGV[1], 'n', ARGV[2], 'of', ARGV[7], unpack(ARGV, 8))
else
  redis.call('HSET', META, 'e', ARGV[1], 'of', ARGV[7], unpack(ARGV, 8))
end
-- Jobs that the former settings held back are not hinted by anybody else.
if ARGV[9] ~= '1' and redis.call('EXISTS', R0, R1, R2, SUSPECTS, ALONE) > 0 then
  hint_ready(server_now(meta[4]))
  return {state, 1, 0}
end
return {state, 0, 0}
