-- GLANCE: what the hints of a queue say.
--
-- KEYS  1 hot zset, 2 due zset
-- ARGV  none
-- Returns {a partition is hot (0/1), earliest due ms or -1, now}
-- Cost  O(1). Called by the operator, for queues without workers.
local HOT, DUE = unpack(KEYS)
--@include clock

local hot = redis.call('ZRANGE', HOT, 0, 1)
local ready = #hot == 2 or (#hot == 1 and hot[1] ~= '@')
local head = redis.call('ZRANGE', DUE, 0, 0, 'WITHSCORES')
return {ready and 1 or 0, head[2] and tonumber(head[2]) or -1, server_now()}
