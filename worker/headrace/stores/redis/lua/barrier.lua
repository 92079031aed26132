-- BARRIER: a write that changes nothing, so that a WAIT on the same connection is for everything written here before.
--
-- KEYS  1 meta hash of a partition, or the topology string of a queue
-- ARGV  none
-- Returns 1, or 0 if the key does not exist: then nothing was written
-- Cost  O(1). Called after the writes that a failover should not forget, through Store.replicated.
local KEY = KEYS[1]
if redis.call('EXISTS', KEY) == 0 then return 0 end
if redis.call('TYPE', KEY).ok == 'hash' then
  redis.call('HINCRBY', KEY, 'done', 0)
else
  redis.call('APPEND', KEY, '')
end
return 1
