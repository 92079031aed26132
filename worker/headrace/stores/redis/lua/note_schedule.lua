-- NOTE_SCHEDULE: compare-and-set of what is noted of a schedule, by the queue's leader.
--
-- KEYS  1 schedules hash: marks by name, ':e' and ':n' epoch and nonce of the leader that is obeyed; 2 topology string
-- ARGV  1 epoch, 2 nonce, 3 incarnation of the leader, 4 name, 5 the mark that is replaced, '' if there is none, 6 the mark
-- Returns {'ok'}, or nothing was changed: {'changed'}, {'fenced', epoch of the leader that is obeyed}
-- Cost  O(size of the topology). Called by the leader after a schedule was due.
local SCHEDULES, TOPOLOGY = unpack(KEYS)
local EPOCH, NONCE, NAME = ARGV[1], ARGV[2], ARGV[4]
local stored = redis.call('GET', TOPOLOGY)
if not stored then return {'changed'} end
local known = redis.call('HMGET', SCHEDULES, ':e', ':n', NAME)
local theirs, ours = tonumber(known[1] or 0), tonumber(EPOCH)
local incarnation = cjson.decode(stored).incarnation or 1
if ours < theirs or (ours == theirs and known[2] ~= NONCE) or incarnation ~= tonumber(ARGV[3]) then
  return {'fenced', theirs}
end
if ours > theirs then redis.call('HSET', SCHEDULES, ':e', EPOCH, ':n', NONCE) end
if (known[3] or '') ~= ARGV[5] then return {'changed'} end
redis.call('HDEL', SCHEDULES, NAME) -- a removal first: at maxmemory the HSET alone would be refused
redis.call('HSET', SCHEDULES, NAME, ARGV[6])
return {'ok'}
