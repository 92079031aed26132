-- CLAIM: acknowledge finished jobs, recover expired leases, promote what is due, lease ready jobs.
--
-- The first write of every path is a removal, so that claims go on when Redis is at maxmemory.
-- KEYS  1 meta hash, 2-4 ready lists of lanes 0-2, 5 scheduled zset, 6 retry zset, 7 leased zset, 8 lease hash,
--       9 jobs hash, 10 mut hash, 11 seen zset; standalone form also: 12 hot zset, 13 due zset, 14 alarm hash
-- ARGV  1 label "version:partition", 2 worker, 3 seq of this call, 4 jobs wanted (0..256), 5 lease ms,
--       6 msgpack [key, token, ...] of finished jobs, or ''
-- Returns {'ok', now, refused acks (indexes from 0), msgpack [key, record, changes or '', ...] or '',
--          label of the next hot partition or '', ms for the alarm or -1, more jobs are ready (0/1), next due ms or -1}
--         {'gone'}: absent, closed or tombstone
-- Cost  O(acks + jobs) + O(log n) each; at most 100 recovered and 1,000 promoted. Called by workers.
local META, R0, R1, R2, SCHEDULED, RETRY, LEASED, LEASE, JOBS, MUT, SEEN = unpack(KEYS, 1, 11)
local HOT, DUE, ALARM = KEYS[12], KEYS[13], KEYS[14]
local LABEL, WORKER = ARGV[1], ARGV[2]
local TOKEN = WORKER .. ':' .. ARGV[3]
--@include clock
--@include changes
--@include leased
--@include acks
--@include ready
--@include recover
--@include promote_due
--@include next_due
--@include alarm

local meta = redis.call('HMGET', META, 's', 't', 'done')
if HOT then redis.call('ZREM', HOT, LABEL) end
if meta[1] ~= 'A' and meta[1] ~= 'D' then
  if DUE then redis.call('ZREM', DUE, LABEL) end
  return {'gone'}
end
local now = server_now(meta[2])
local finished, refused = settle_acks(ARGV[6])
local recovered = recover_expired(now)
local promoted = promote_due(now)

local wanted = math.min(tonumber(ARGV[4]), 256)
if wanted > 0 and redis.call('ZSCORE', SEEN, TOKEN) then wanted = 0 end
local ids, leases, tokens = {}, {}, {}
local ends = now + tonumber(ARGV[5])
for n, list in ipairs({R0, R1, R2}) do
  local lane = tostring(n - 1)
  if wanted > #ids then
    for _, id in ipairs(redis.call('LPOP', list, wanted - #ids) or {}) do
      ids[#ids + 1] = id
      leases[#leases + 1] = ends
      leases[#leases + 1] = lane .. id
      tokens[#tokens + 1] = id
      tokens[#tokens + 1] = TOKEN
    end
  end
end
local packed = ''
if #ids > 0 then
  redis.call('ZADD', LEASED, unpack(leases))
  redis.call('HSET', LEASE, unpack(tokens))
  local records = redis.call('HMGET', JOBS, unpack(ids))
  local facts = redis.call('EXISTS', MUT) == 1 and redis.call('HMGET', MUT, unpack(ids)) or {}
  local jobs = {}
  for n = 1, #ids do
    jobs[#jobs + 1] = leases[n * 2]
    jobs[#jobs + 1] = records[n] or ''
    jobs[#jobs + 1] = facts[n] or ''
  end
  packed = cmsgpack.pack(jobs)
end
if finished + recovered + promoted + #ids > 0 then
  redis.call('HSET', META, 't', now, 'done', tonumber(meta[3] or 0) + finished)
end

local more, due, following, alarm_ms = 0, -1, '', -1
if redis.call('EXISTS', R0, R1, R2) > 0 then more = 1 else due = next_due() or -1 end
if HOT then
  if more == 1 then
    redis.call('ZADD', HOT, now, LABEL)
    redis.call('ZADD', DUE, now + 2000, LABEL)
  else
    if due >= 0 then redis.call('ZADD', DUE, due, LABEL) else redis.call('ZREM', DUE, LABEL) end
    alarm_ms = alarm(now, WORKER)
  end
  following = redis.call('ZRANGE', HOT, 0, 0)[1] or ''
end
return {'ok', now, refused, packed, following, alarm_ms, more, due}
