-- The facts of a job that change, msgpack
-- [attempt, expiries, last error, [[status, at, worker, error], ...], crashes, suspicion, [value, note, at] of the
-- progress that was reported last, if any].
-- suspicion: 0 none, 1 suspect (its lease was lost), 2 to be run alone (lost again).
-- changed(): the packed facts after one more event, the suspicion before it, and the crashes after it. Of the events the
-- newest are kept, as many as `entries` says ('hist' of the meta; 20 if it says nothing). One with `expiries` raises the
-- suspicion, one that has `cleared` ends it; `survived` forgets the crashes, too.
local function changed(packed, event, entries)
  local facts = packed and cmsgpack.unpack(packed) or {0, 0, '', {}, 0, 0}
  local suspicion = facts[6]
  facts[1] = facts[1] + (event.attempts or 0)
  facts[2] = facts[2] + (event.expiries or 0)
  if event.expiries then
    if suspicion == 2 then facts[5] = facts[5] + 1 end
    facts[6] = math.min(2, suspicion + 1)
  elseif event.cleared then
    facts[6] = 0
  end
  if event.survived then facts[5] = 0 end
  if event.error ~= '' then facts[3] = event.error end
  local history = facts[4]
  history[#history + 1] = {event.status, event.now, string.match(event.token, '^(.*):%d+$') or event.token, event.error}
  local most = tonumber(entries or 20) or 20
  while #history > most do table.remove(history, 1) end
  return cmsgpack.pack(facts), suspicion, facts[5]
end
