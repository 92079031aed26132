-- id_of(list, entry): the job's id; suspects and jobs that run alone carry their lane. '' if it is not an entry at all.
local function id_of(which, entry)
  if which < 4 then return entry end
  return string.match(entry, '^[012](.+)$') or ''
end

-- shifts(): how many entries were taken out in the middle of a list of the partition, ever.
local function shifts() return tonumber(redis.call('HGET', META, 'shifts') or 0) or 0 end

-- An audit reads lists from the tail, page by page, and counts from the entry nearest to the tail that it knows, its anchor.
-- Lists are popped at the head and pushed at the tail, which changes no distance between two entries. What is taken out in
-- the middle gives its place to the last entry (lib/take_out.lua), which changes none either; these count in 'shifts'. So
-- what was read of a place is true of it, unless it shifted: then another entry may be there, perhaps one that nobody read.
-- The anchor must not have been popped, and its id pushed again: pops of all lists together count in 'took'.
-- anchor_distance(list, seen): distance of the anchor from the tail, nil if that cannot be said. `seen` = anchor, its
-- distance when it was seen last, how many entries were read from there on, the next one of them, shifts at that time, pops
-- when the anchor was seen first, and of how many pops it could have been the last.
local function anchor_distance(which, seen)
  local anchor, hint, known, beside, before, took, spare = unpack(seen)
  local shifted = shifts() - before
  if shifted < 0 or tonumber(redis.call('HGET', META, 'took') or 0) - took >= spare then return nil end
  local length = redis.call('LLEN', LISTS[which])
  local nearest = math.max(0, hint - shifted) -- each shift took one entry from the tail
  for window = 0, 9 do
    local near = nearest + window * 1000
    if near >= length then return nil end
    local entries = redis.call('LRANGE', LISTS[which], -(near + 1001), -(near + 1))
    for n = #entries, math.max(1, #entries - 999), -1 do
      local distance = near + #entries - n
      -- An id that a foreign hand has pushed once more must not be taken for it, nor one that has come to another place.
      if entries[n] == anchor and (known < 2 or distance == length - 1 or entries[n - 1] == beside) then
        return distance
      end
    end
  end
  return nil
end
