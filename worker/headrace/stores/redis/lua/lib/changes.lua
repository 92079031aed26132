-- The facts of a job that change: msgpack [attempt, expiries, last error, number of events, crashes, suspicion, [value, note,
-- at] of the progress that was reported last, if any], and behind it each event, msgpack [status, at, worker, error]. So
-- whoever changes facts copies the history, but does not unpack it.
-- suspicion: 0 none, 1 suspect (its lease was lost), 2 to be run alone (lost again).
-- facts_of(): the facts, and the packed events. Where a foreign hand has left what cannot be read, nothing has happened yet:
-- else no step would get past this job again.
local function facts_of(packed)
  if packed then
    local whole, after, facts = pcall(cmsgpack.unpack_one, packed)
    if whole and type(facts) == 'table' and type(facts[6]) == 'number' then
      return facts, after < 0 and '' or string.sub(packed, after + 1)
    end
  end
  return {0, 0, '', 0, 0, 0}, ''
end

-- changed(): the packed facts after one more event, the suspicion before it, and the crashes after it. Of the events the
-- newest are kept, as many as `entries` says ('hist' of the meta; 20 if it says nothing). One with `expiries` raises the
-- suspicion, one that has `cleared` ends it; `survived` forgets the crashes, too.
local function changed(packed, event, entries)
  local facts, events = facts_of(packed)
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
  local worker = string.match(event.token, '^(.*):%d+$') or event.token
  events = events .. cmsgpack.pack({event.status, event.now, worker, event.error})
  local over, from = facts[4] + 1 - (tonumber(entries or 20) or 20), 0
  facts[4] = facts[4] + 1 - math.max(0, over)
  for _ = 1, over do
    local whole, after = pcall(cmsgpack.unpack_one, events, from)
    from = whole and after or -1
    if from < 0 then break end
  end
  if from < 0 then events = '' elseif from > 0 then events = string.sub(events, from + 1) end
  return cmsgpack.pack(facts) .. events, suspicion, facts[5]
end
