-- make_room(now, worker, till, asks, alone): whether this worker is to stop claiming until it runs nothing, so that it can
-- run a job that must run alone. One worker at a time is asked, so that the others go on: `worker` until `till` (ms). It
-- says again and again that it still makes room; another one is asked when it no longer does, or has taken such a job
-- (`alone`), and more of them wait. `asks`: the worker wants jobs, so it may be asked.
local function make_room(now, worker, till, asks, alone)
  local mine = worker == WORKER
  local waits = redis.call('EXISTS', ALONE) == 1
  if alone or not waits then
    if mine then redis.call('HDEL', META, 'room', 'roomt') end
    return 0
  end
  if not mine and (not asks or (worker and till > now)) then return 0 end
  redis.call('HDEL', META, 'room') -- a removal first: at maxmemory a script must not begin with an addition
  redis.call('HSET', META, 'room', WORKER, 'roomt', now + 10000)
  return 1
end
