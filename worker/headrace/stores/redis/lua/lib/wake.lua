-- wake(queue): tells whoever starts workers. WAKES is nil in the Cluster form of ENQUEUE, after which the client tells.
local function wake(queue)
  if WAKES then redis.call('XADD', WAKES, 'MAXLEN', '~', 1000, '*', 'q', queue) end
end
