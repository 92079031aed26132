-- ADOPT_FINISHED: keep jobs that finished in an older version, as far as there is room beside those that finished here.
--
-- KEYS  1 meta hash, 2 done stream
-- ARGV  1 incarnation of the queue, then of each batch, the newest first, at most 1,000: finished ms, worker, number of
--       jobs, msgpack [id, type, attempt, result, ...]
-- Returns how many batches were taken; -1 and nothing was changed if the partition is not active
-- Cost  O(batches). Called by headrace.finished.
local META, DONE = KEYS[1], KEYS[2]
--@include clock
--@include incarnation
--@include finished_entry
--@include finished

local meta = redis.call('HMGET', META, 's', 'i', 't')
if meta[1] ~= 'A' or compared(meta[2], ARGV[1]) ~= 0 then return -1 end
local now = server_now(meta[3])
local kept = finished_kept(now)
if not kept then return 0 end
local taken = 0
for i = 2, #ARGV, 4 do
  local t, worker, jobs, data = tonumber(ARGV[i]), ARGV[i + 1], tonumber(ARGV[i + 2]), ARGV[i + 3]
  if kept.jobs >= kept.most_jobs or kept.bytes + #data > kept.most_bytes or t + kept.ms <= now then break end
  add_finished(kept, t, worker, jobs, data)
  taken = taken + 1
end
if taken > 0 then note_finished(kept) end
return taken
