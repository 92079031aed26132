-- The facts of a job that change, msgpack
-- [attempt, expiries, last error, [[status, at, worker, error], ...], crashes, suspect (0/1)].
-- changed(): the packed facts after one more event, and whether the job was a suspect before it; the newest 20 events
-- are kept. `suspect` nil leaves that as it is.
local function changed(packed, event)
  local facts = packed and cmsgpack.unpack(packed) or {0, 0, '', {}, 0, 0}
  local was_suspect = facts[6] == 1
  facts[1] = facts[1] + (event.attempts or 0)
  facts[2] = facts[2] + (event.expiries or 0)
  if event.expiries and was_suspect then facts[5] = facts[5] + 1 end
  if event.suspect then facts[6] = event.suspect end
  if event.survived then facts[5] = 0 end
  if event.error ~= '' then facts[3] = event.error end
  local history = facts[4]
  history[#history + 1] = {event.status, event.now, string.match(event.token, '^(.*):%d+$') or event.token, event.error}
  while #history > 20 do table.remove(history, 1) end
  return cmsgpack.pack(facts), was_suspect, facts[5]
end
