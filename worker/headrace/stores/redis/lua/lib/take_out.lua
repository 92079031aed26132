-- take_out(list, index, length): removes one entry in the middle of a list at the cost of a seek: the last one takes its
-- place. No order is promised, and whoever reads the list page by page sees by 'shifts' that it may have missed that one.
local function take_out(which, index, length)
  local last = redis.call('RPOP', LISTS[which])
  if index < length - 1 then redis.call('LSET', LISTS[which], index, last) end
  redis.call('HINCRBY', META, 'shifts', 1)
end
