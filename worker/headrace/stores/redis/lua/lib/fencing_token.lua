-- next_fencing_token(last, now): a number above that of every earlier lease in this partition (`last`: 'ft' in its meta),
-- and, as long as clocks agree, above that of one elsewhere which ended before: microseconds of the server's time.
local function next_fencing_token(last, now)
  return math.max((tonumber(last or 0) or 0) + 1, now * 1000)
end
