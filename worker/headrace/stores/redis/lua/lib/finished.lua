-- The stream of finished jobs. An entry per batch of acknowledgements: t when they finished (ms), w the worker, n jobs,
-- d msgpack [id, type, attempt, result, ...]. The meta holds 'keep', "jobs:bytes:ms" to be kept ('' or nil: nothing), and
-- 'fin', "jobs:bytes:newest entry:t:n" - what there is, and when the jobs of the oldest entry finished, and how many.
local ENTRY_BYTES = 64 -- of an entry besides its data, roughly

-- finished_kept(now): both as a table; nil if nothing is to be kept.
local function finished_kept(now)
  local stored = redis.call('HMGET', META, 'keep', 'fin')
  local jobs, bytes, ms = string.match(stored[1] or '', '^(%d+):(%d+):(%d+)$')
  if not jobs then return nil end
  local kept = {most_jobs = tonumber(jobs), most_bytes = tonumber(bytes), ms = tonumber(ms)}
  kept.jobs, kept.bytes, kept.newest, kept.t, kept.n = 0, 0, '0-0', 0, 0
  local there = {string.match(stored[2] or '', '^(%d+):(%d+):(%d+%-%d+):(%d+):(%d+)$')}
  -- The stream ends by itself some time after its newest entry.
  if there[1] and tonumber(string.match(there[3], '^%d+')) + kept.ms > now then
    kept.jobs, kept.bytes, kept.newest = tonumber(there[1]), tonumber(there[2]), there[3]
    kept.t, kept.n = tonumber(there[4]), tonumber(there[5])
  elseif there[1] then
    redis.call('UNLINK', DONE)
  end
  return kept
end

local function note_finished(kept)
  local there = string.format('%d:%d:%s:%d:%d', kept.jobs, kept.bytes, kept.newest, kept.t, kept.n)
  redis.call('HSET', META, 'fin', there)
end

-- trim_finished(kept, now, most): drops at most `most` of the oldest entries, whole: those that are too old, and those
-- without which enough jobs are left, or as few bytes as wanted; the newest entry stays unless it is too old. Returns how
-- many jobs were dropped.
local function trim_finished(kept, now, most)
  local dropped = 0
  for _ = 1, most do
    local old = kept.n > 0 and kept.t + kept.ms <= now
    local large = kept.bytes > kept.most_bytes and kept.jobs > kept.n
    local many = kept.n > 0 and kept.jobs - kept.n >= kept.most_jobs
    if not (old or large or many) then break end
    local entries = redis.call('XRANGE', DONE, '-', '+', 'COUNT', 2)
    local first, second = entries[1] and finished_entry(entries[1]), entries[2] and finished_entry(entries[2])
    if entries[1] and not first then
      redis.call('XDEL', DONE, entries[1][1]) -- of a foreign hand: nobody can read it
    elseif first and (first.t ~= kept.t or first.n ~= kept.n) then
      -- Somebody else has cut the stream: look at what there is.
      if not second then kept.jobs, kept.bytes = first.n, #first.data + ENTRY_BYTES end
      kept.t, kept.n = first.t, first.n
    else
      if first then
        redis.call('XDEL', DONE, entries[1][1])
        dropped = dropped + kept.n
        kept.jobs, kept.bytes = kept.jobs - kept.n, kept.bytes - #first.data - ENTRY_BYTES
      end
      kept.t, kept.n = 0, 0
      if second then kept.t, kept.n = second.t, second.n elseif not entries[2] then kept.jobs, kept.bytes = 0, 0 end
    end
  end
  return dropped
end

-- add_finished(kept, t, worker, jobs, data): appends an entry.
local function add_finished(kept, t, worker, jobs, data)
  kept.newest = redis.call('XADD', DONE, '*', 't', t, 'w', worker, 'n', jobs, 'd', data)
  kept.jobs, kept.bytes = kept.jobs + jobs, kept.bytes + #data + ENTRY_BYTES
  if kept.n == 0 then kept.t, kept.n = t, jobs end
  redis.call('PEXPIRE', DONE, kept.ms) -- where nothing finishes any more nobody trims
end
