-- FAIL: record failed runs; each job waits for its retry, or becomes a dead letter.
--
-- KEYS  1 meta hash, 2 retry zset, 3 leased zset, 4 lease hash, 5 jobs hash, 6 mut hash, 7 dead zset,
--       8 dead letters hash; standalone form also: 9 hot zset, 10 due zset
-- ARGV  1 label "version:partition", 2 msgpack [key, token, delay ms or -1 = dead, status, error, ...], at most 1,000
-- Returns {refused elements (indexes from 0), earliest retry ms or -1}
-- Cost  O(failures log n). Called by workers.
local META, RETRY, LEASED, LEASE, JOBS, MUT, DEAD, LETTERS = unpack(KEYS, 1, 8)
local HOT, DUE = KEYS[9], KEYS[10]
local LABEL = ARGV[1]
--@include clock
--@include changes
--@include leased
--@include hints

local batch = cmsgpack.unpack(ARGV[2])
local ids, keys, positions, refused = held(batch, 5)
if #ids == 0 then return {refused, -1} end
local now = server_now(redis.call('HGET', META, 't'))
local facts = redis.call('HMGET', MUT, unpack(ids))
redis.call('ZREM', LEASED, unpack(keys))
redis.call('HDEL', LEASE, unpack(ids))
local earliest = -1
for n, id in ipairs(ids) do
  local i = positions[n]
  local delay = batch[i + 2]
  local after = changed(facts[n], 1, 0, batch[i + 3], now, batch[i + 1], batch[i + 4])
  if delay < 0 then
    local died = now -- an id may be used again and die again; each death is a letter of its own
    while redis.call('HEXISTS', LETTERS, id .. '@' .. died) == 1 do died = died + 1 end
    local letter = id .. '@' .. died
    redis.call('HSET', LETTERS, letter, cmsgpack.pack({redis.call('HGET', JOBS, id) or '', after}))
    redis.call('ZADD', DEAD, died, letter)
    redis.call('HDEL', JOBS, id)
    redis.call('HDEL', MUT, id)
  else
    redis.call('HSET', MUT, id, after)
    redis.call('ZADD', RETRY, now + delay, keys[n])
    if earliest < 0 or now + delay < earliest then earliest = now + delay end
  end
end
redis.call('HSET', META, 't', now)
redis.call('HINCRBY', META, 'failed', #ids)
if earliest >= 0 then hint_due(earliest) end
return {refused, earliest}
