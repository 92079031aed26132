-- The facts of a job that change, msgpack [attempt, expiries, last error, [[status, at, worker, error], ...]].
-- changed(): the packed facts after one more event; the newest 20 events are kept.
local function changed(packed, attempts, expiries, status, now, token, message)
  local facts = packed and cmsgpack.unpack(packed) or {0, 0, '', {}}
  facts[1] = facts[1] + attempts
  facts[2] = facts[2] + expiries
  if message ~= '' then facts[3] = message end
  local history = facts[4]
  history[#history + 1] = {status, now, string.match(token, '^(.*):%d+$') or token, message}
  while #history > 20 do table.remove(history, 1) end
  return cmsgpack.pack(facts)
end
