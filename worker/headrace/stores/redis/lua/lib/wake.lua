-- wake(queue): tells whoever starts workers. WAKES is nil in the Cluster form of ENQUEUE, after which the client tells. Where a
-- foreign hand has put something else in its place, the step goes on: the sweep finds the queue.
local function wake(queue)
  local told = WAKES and redis.pcall('XADD', WAKES, 'MAXLEN', '~', 1000, '*', 'q', queue)
  if type(told) == 'table' and told.err and not string.find(told.err, 'WRONGTYPE', 1, true) then error(told) end
end
