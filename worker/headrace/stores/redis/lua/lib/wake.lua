-- wake(queue): tells whoever starts workers. WAKES is nil in the Cluster form of ENQUEUE, after which the client tells. Where a
-- foreign hand has put something else in its place, the step goes on: the sweep finds the queue.
local function wake(queue)
  local told = WAKES and redis.pcall('XADD', WAKES, 'MAXLEN', '~', 1000, '*', 'q', queue)
  local failed = type(told) == 'table' and told.err
  if failed and not string.find(failed, 'WRONGTYPE', 1, true) then redis.call('XADD', WAKES, '*', 'q', queue) end -- raises it
end
