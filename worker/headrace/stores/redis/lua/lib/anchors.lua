-- id_of(list, entry): the job's id; suspects and jobs that run alone carry their lane. '' if it is not an entry at all.
local function id_of(which, entry)
  if which < 4 then return entry end
  return string.match(entry, '^[012](.+)$') or ''
end

-- An audit reads lists from the tail, page by page, and counts from the entry nearest to the tail, its anchor. That holds
-- as long as they are popped at the head and pushed at the tail; whatever else changes them counts in 'shifts' of meta. And
-- as long as the anchor was not popped: pops of all lists together count in 'took'.
-- anchor_distance(list, seen): distance of the anchor from the tail, nil if that cannot be said. `seen` = anchor, its
-- distance when it was seen last, how many entries were read from there on, the next one of them, shifts when the list was
-- begun, pops when the anchor was seen first, and of how many pops it could have been the last.
local function anchor_distance(which, seen)
  local anchor, hint, known, beside, shifts, took, spare = unpack(seen)
  local meta = redis.call('HMGET', META, 'shifts', 'took')
  if (meta[1] or '0') ~= shifts or tonumber(meta[2] or 0) - took >= spare then return nil end
  local length = redis.call('LLEN', LISTS[which])
  for window = 0, 9 do
    local near = hint + window * 1000
    if near >= length then return nil end
    local entries = redis.call('LRANGE', LISTS[which], -(near + 1001), -(near + 1))
    for n = #entries, math.max(1, #entries - 999), -1 do
      local distance = near + #entries - n
      -- An id that a foreign hand has pushed once more must not be taken for it.
      if entries[n] == anchor and (known < 2 or distance == length - 1 or entries[n - 1] == beside) then
        return distance
      end
    end
  end
  return nil
end
