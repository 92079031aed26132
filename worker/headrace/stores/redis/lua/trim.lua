-- TRIM: drop finished jobs and dead letters that the queue's retention no longer keeps, in one bounded step.
--
-- KEYS  1 meta hash, 2 dead zset, 3 dead letters hash, 4 done stream
-- ARGV  none, or 1 epoch, 2 nonce, 3 incarnation of the leader
-- Returns {finished jobs dropped, dead letters dropped}; both 0: nothing is left to do
--         {'fenced', epoch of a newer leader} and nothing was changed
-- Cost  O(entries dropped): at most 16 batches of finished jobs and 500 dead letters; O(1) for finished jobs of which none
--       is to be kept. Called by whoever looks after the queue. Where jobs finish or die, their steps do the same.
local META, DEAD, LETTERS, DONE = unpack(KEYS)
--@include clock
--@include incarnation
--@include fence
--@include trim_dead
--@include finished_entry
--@include finished

if ARGV[1] then
  local newer = newer_leader(ARGV[1], ARGV[2], ARGV[3])
  if newer then return {'fenced', newer} end
end
local meta = redis.call('HMGET', META, 's', 't', 'deadmax', 'fin')
if not meta[1] or meta[1] == 'T' then return {0, 0} end
local now = server_now(meta[2])
local dropped = 0
local kept = finished_kept(now)
if kept then
  dropped = trim_finished(kept, now, 16)
  if dropped > 0 then note_finished(kept) end
elseif meta[4] then
  if redis.call('UNLINK', DONE) == 1 then dropped = tonumber(string.match(meta[4], '^%d+')) end
  redis.call('HDEL', META, 'fin')
end
return {dropped, trim_dead(meta[3], 500)}
