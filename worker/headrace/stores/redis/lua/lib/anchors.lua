-- id_of(list, entry): the job's id; suspects and jobs that run alone carry their lane. '' if it is not an entry at all.
local function id_of(which, entry)
  if which < 4 then return entry end
  return string.match(entry, '^[012](.+)$') or ''
end

-- shifts(): how often a list of the partition has changed otherwise than by pops at its head and pushes at its tail: entries
-- that were taken out (lib/take_out.lua), and calls that gave jobs back to the head (release.lua), where a reader may have
-- been already.
local function shifts() return tonumber(redis.call('HGET', META, 'shifts') or 0) or 0 end

-- An audit reads lists from the tail, page by page, and counts from the entry nearest to the tail that it knows, its anchor.
-- Lists are popped at the head and pushed at the tail, which changes no distance between two entries. What is taken out in
-- the middle gives its place to the last entry (lib/take_out.lua), which changes none either; these count in 'shifts'. So
-- what was read of a place is true of it, unless it shifted: then another entry may be there, perhaps one that nobody read.
-- The anchor must not have been popped, and its id pushed again: pops of all lists together count in 'took'.
-- What stands before it is only popped: an anchor with less before it has come to another place.
-- anchor_distance(list, anchors): distance of the first anchor from the tail, by whichever of them is there; below 0 if the
-- first was nearer to the tail than the list now ends; nil if none is there. Each anchor = entry, its distance when it was
-- seen last, how many entries were read from there on, the next one of them, shifts and pops at that time, of how many pops
-- it could have been the last, and how much farther from the tail it is than the first.
local function anchor_distance(which, anchors)
  local shifted, took = shifts(), tonumber(redis.call('HGET', META, 'took') or 0)
  local sought, nearest = {}, nil
  for _, each in ipairs(anchors) do
    local left = each[7] - (took - each[6])
    if shifted >= each[5] and left > 0 then
      sought[each[1]] = {known = each[3], beside = each[4], left = left, farther = each[8]}
      local hint = each[2] - (shifted - each[5]) -- each shift took one entry from the tail
      nearest = math.max(0, math.min(nearest or hint, hint))
    end
  end
  if not nearest then return nil end
  local length = redis.call('LLEN', LISTS[which])
  for window = 0, 9 do
    local near = nearest + window * 1000
    if near >= length then return nil end
    local entries = redis.call('LRANGE', LISTS[which], -(near + 1001), -(near + 1))
    for n = #entries, math.max(1, #entries - 999), -1 do
      local anchor = sought[entries[n]]
      if anchor then
        -- An id that a foreign hand has pushed once more must not be taken for it, nor one that has come to another place.
        local distance = near + #entries - n
        local beside = anchor.known < 2 or distance == length - 1 or entries[n - 1] == anchor.beside
        if beside and length - distance >= anchor.left then return distance - anchor.farther end
      end
    end
  end
  return nil
end
