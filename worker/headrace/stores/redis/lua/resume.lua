-- RESUME: return again the batch of a claim whose reply was lost, its leases renewed; the claim itself can no longer
-- be applied afterwards.
--
-- KEYS  1 meta hash, 2 leased zset, 3 lease hash, 4 jobs hash, 5 mut hash, 6 seen zset
-- ARGV  1 worker, 2 seq of the claim, 3 lease ms
-- Returns {'ok', now, msgpack [key, record, changes or '', ...] or '', fencing token of the leases} or {'gone'}
-- Cost  O(jobs in flight in this partition), all of them read. No more are leased than its workers may hold together
--       (max_in_flight of each, by default its slots plus 1,000), nor than the queue's limit of jobs in flight lets.
--       Called by a worker after a lost reply.
local META, LEASED, LEASE, JOBS, MUT, SEEN = unpack(KEYS)
local TOKEN = ARGV[1] .. ':' .. ARGV[2]
--@include clock
--@include fencing_token

local meta = redis.call('HMGET', META, 's', 't', 'ft')
if meta[1] ~= 'A' and meta[1] ~= 'D' then return {'gone'} end
local now = server_now(meta[2])
redis.call('ZREM', SEEN, TOKEN) -- a removal first: at maxmemory the ZADD alone would be refused
redis.call('ZADD', SEEN, now, TOKEN)
redis.call('PEXPIRE', SEEN, 10000)
local jobs = {}
local held = redis.call('HGETALL', LEASE)
for i = 1, #held, 2 do
  local id = held[i]
  for lane = 0, 2 do
    local key = lane .. id
    if held[i + 1] == TOKEN and redis.call('ZSCORE', LEASED, key) then
      redis.call('ZADD', LEASED, 'XX', now + tonumber(ARGV[3]), key)
      jobs[#jobs + 1] = key
      jobs[#jobs + 1] = redis.call('HGET', JOBS, id) or ''
      jobs[#jobs + 1] = redis.call('HGET', MUT, id) or ''
    end
  end
end
if #jobs == 0 then return {'ok', now, '', 0} end
local fencing_token = next_fencing_token(meta[3], now)
redis.call('HSET', META, 'ft', fencing_token)
return {'ok', now, cmsgpack.pack(jobs), fencing_token}
