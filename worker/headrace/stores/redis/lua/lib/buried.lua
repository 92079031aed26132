-- buried(): the queue was deleted and nobody has created it again. A hint that comes late would be left for ever.
local function buried()
  return redis.call('EXISTS', TOPOLOGY) == 0 and redis.call('EXISTS', GRAVE) == 1
end
