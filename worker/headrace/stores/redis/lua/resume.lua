-- RESUME: return again the batch of a claim whose reply was lost, its leases renewed; the claim itself can no longer
-- be applied afterwards.
--
-- KEYS  1 meta hash, 2 leased zset, 3 lease hash, 4 jobs hash, 5 mut hash, 6 seen zset
-- ARGV  1 worker, 2 seq of the claim, 3 lease ms, 4 cursor, '0' to begin, 5 leases to look at, roughly
-- Returns {'ok', now, msgpack [key, record, changes or '', ...] or '', fencing token of the leases or 0, cursor} or {'gone'}
--         A page: it is called until the cursor is '0'. The first one sees to it that the claim leases nothing any more.
-- Cost  O(leases looked at), and O(log n) for each of the claim's. Called by a worker after a lost reply.
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
local page = redis.call('HSCAN', LEASE, ARGV[4], 'COUNT', ARGV[5])
local cursor, held = page[1], page[2]
for i = 1, #held, 2 do
  local id = held[i]
  for lane = 0, held[i + 1] == TOKEN and 2 or -1 do
    local key = lane .. id
    if redis.call('ZSCORE', LEASED, key) then
      redis.call('ZADD', LEASED, 'XX', now + tonumber(ARGV[3]), key)
      jobs[#jobs + 1] = key
      jobs[#jobs + 1] = redis.call('HGET', JOBS, id) or ''
      jobs[#jobs + 1] = redis.call('HGET', MUT, id) or ''
    end
  end
end
if #jobs == 0 then return {'ok', now, '', 0, cursor} end
local fencing_token = next_fencing_token(meta[3], now)
redis.call('HSET', META, 'ft', fencing_token)
return {'ok', now, cmsgpack.pack(jobs), fencing_token, cursor}
