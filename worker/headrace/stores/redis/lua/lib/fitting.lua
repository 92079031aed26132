-- fitting(ids, most, besides): how many of these jobs, from the first, one step changes: `most`, and until their histories,
-- and what besides(n, id, bytes of its history) counts, have 256 KiB together. One in any case.
local function fitting(ids, most, besides)
  local changed_jobs, bytes = redis.call('EXISTS', MUT) == 1, 0
  for n, id in ipairs(ids) do
    if n > most then return most end
    local history = changed_jobs and redis.call('HSTRLEN', MUT, id) or 0
    bytes = bytes + history + (besides and besides(n, id, history) or 0)
    if n > 1 and bytes > 262144 then return n - 1 end
  end
  return #ids
end
