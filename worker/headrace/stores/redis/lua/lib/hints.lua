-- Wake-up hints. HOT and DUE are nil in the Cluster form, where the client gives the hints after the script. They are hints:
-- where a foreign hand has put something else in their place, the step that gives them goes on. Claims say so.
-- hint_ready: jobs became ready where none were. DUE at now + 2 s is the dead man's switch for a lost hint.
local function hint_ready(now)
  if HOT then
    redis.pcall('ZADD', HOT, 'NX', now, LABEL)
    redis.pcall('ZADD', DUE, 'LT', now + 2000, LABEL)
  end
end

-- hint_due: a job waits until `at`; if that is the earliest time of the queue, '@' makes a worker set its timer anew.
local function hint_due(at)
  if HOT then
    local head = redis.pcall('ZRANGE', DUE, '0', '0', 'WITHSCORES')
    redis.pcall('ZADD', DUE, 'LT', at, LABEL)
    if not head[2] or at < tonumber(head[2]) - 1 then redis.pcall('ZADD', HOT, -1, '@') end
  end
end
