-- CLAIM: acknowledge finished jobs, recover expired leases, promote what is due, lease ready jobs.
--
-- The first write of every path is a removal, so that claims go on when Redis is at maxmemory.
-- KEYS  1 meta hash, 2-4 ready lists of lanes 0-2, 5 scheduled zset, 6 retry zset, 7 leased zset, 8 lease hash,
--       9 jobs hash, 10 mut hash, 11 seen zset, 12 suspects list, 13 alone list, 14 dead zset,
--       15 dead letters hash, 16 done stream; standalone form also: 17 hot zset, 18 due zset, 19 alarm hash
-- ARGV  1 label "version:partition", 2 worker, 3 seq of this call, 4 jobs wanted (0..256), 5 lease ms,
--       6 msgpack [key, token, ...] of finished jobs, at most 256, or '', 7 suspects that may be among them (0..256),
--       8 the worker runs nothing else, and will not while it runs a job of the alone list (0/1),
--       9 msgpack [id, type, attempt, result, ...] of the finished jobs, or '': nothing is kept of them,
--       10 epoch, 11 nonce, 12 incarnation of the leader that claims, or ''
-- Returns {'ok', now, refused acks (indexes from 0), msgpack [key, record, changes or '', ...] or '',
--          label of the next hot partition or '', ms for the alarm or -1, more jobs are ready (0/1), next due ms or -1,
--          a job waits to be run alone and this worker is to make room (0/1),
--          only a leader may claim here, and the caller is not it (0/1), fencing token of the leases,
--          jobs taken back, see lib/recover.lua}
--         {'gone'}: absent, closed or tombstone
-- Cost  O(acks + jobs) + O(log n) each; at most 100 recovered and 500 promoted. Called by workers.
local META, R0, R1, R2, SCHEDULED, RETRY, LEASED, LEASE, JOBS, MUT = unpack(KEYS, 1, 10)
local SEEN, SUSPECTS, ALONE, DEAD, LETTERS, DONE = KEYS[11], KEYS[12], KEYS[13], KEYS[14], KEYS[15], KEYS[16]
local HOT, DUE, ALARM = KEYS[17], KEYS[18], KEYS[19]
local LABEL, WORKER = ARGV[1], ARGV[2]
local TOKEN = WORKER .. ':' .. ARGV[3]
--@include clock
--@include tables
-- What is seldom needed is defined where it is: some twenty functions that are not called cost as much as ten commands.

local meta = redis.call('HMGET', META, 's', 't', 'done', 'crash', 'hold', 'rate', 'cap', 'tokens', 'at', 'room', 'roomt',
  'only', 'ft', 'took', 'big')
if HOT then redis.call('ZREM', HOT, LABEL) end
if meta[1] ~= 'A' and meta[1] ~= 'D' then
  if DUE then redis.call('ZREM', DUE, LABEL) end
  return {'gone'}
end
local now = server_now(meta[2])
local NOW = string.format('%d', now)

local finished, refused = 0, {}
if ARGV[6] ~= '' then
--@include leased
--@include acks
  finished, refused = settle_acks(ARGV[6])
  if finished > 0 and ARGV[9] ~= '' then
--@include finished_entry
--@include finished
--@include keep_finished
    keep_finished(ARGV[9], finished, refused, WORKER, now)
  end
end
local recovered, lost = 0, {}
local first_lease = redis.call('ZRANGE', LEASED, '0', '0', 'WITHSCORES')
if first_lease[2] and tonumber(first_lease[2]) <= now then
--@include changes
--@include bury
--@include trim_dead
--@include fitting
--@include letter_weight
--@include recover
  recovered, lost = recover_expired(now, tonumber(meta[4] or 3) or 3)
  first_lease = redis.call('ZRANGE', LEASED, '0', '0', 'WITHSCORES')
end
-- A plain partition holds nothing but ready jobs of the default lane, and leased ones.
local plain = redis.call('EXISTS', R0, R2, SCHEDULED, RETRY, MUT, SUSPECTS, ALONE) == 0
local promoted = 0
if not plain then
--@include ready
--@include promote_due
  promoted = promote_due(now)
end

local asked = math.min(tonumber(ARGV[4]), 256)
local wanted, reopens, left = asked, nil, nil
local hold = meta[5] == '1'
if hold or (meta[6] or '') ~= '' or (meta[7] or '') ~= '' then
--@include limits
  wanted, reopens, left = allowed(now, asked, {meta[5], meta[6], meta[7], meta[8], meta[9]})
end
local held_back = wanted < asked -- by a limit: what is ready beyond it waits for its time
local fenced = false
if meta[12] == '1' then
--@include incarnation
--@include fence
  fenced = ARGV[10] == '' or newer_leader(ARGV[10], ARGV[11], ARGV[12]) ~= nil
end
if fenced then
  -- Somebody else is to run what is here; the hint comes back a little later, lest two pass it to and fro.
  wanted, reopens = 0, now + 1000
  held_back = asked > 0
end
if wanted > 0 and redis.call('ZSCORE', SEEN, TOKEN) then wanted = 0 end
local keys, ids, suspects, alone, room = {}, {}, {}, false, 0
if not plain or meta[10] == WORKER then
--@include room
  if wanted > 0 and ARGV[8] == '1' then alone = redis.call('LPOP', ALONE) end
  if not hold and not fenced then
    room = make_room(now, meta[10], tonumber(meta[11] or 0), asked > 0, alone)
  end
end
if alone then
  keys[1] = alone
elseif wanted > 0 and room == 0 then
  if plain then
    ids = redis.call('LPOP', R1, wanted) or ids
    for n = 1, #ids do keys[n] = '1' .. ids[n] end
  else
--@include lanes
    local most = math.min(tonumber(ARGV[7]), wanted)
    suspects = most > 0 and redis.call('LPOP', SUSPECTS, most) or {}
    keys = pop_lanes(wanted - #suspects, tonumber(ARGV[3]))
    for _, key in ipairs(suspects) do keys[#keys + 1] = key end
  end
end
local packed, fencing_token, ends = '', 0, now + tonumber(ARGV[5])
if #keys > 0 then
--@include fencing_token
  fencing_token = next_fencing_token(meta[13], now)
  if not plain then
    for n, key in ipairs(keys) do ids[n] = string.sub(key, 2) end
  end
  -- A reply of many large jobs would take too long: what is beyond 256 KiB is not read, and goes back to where it was.
  local jobs, size, fit = {}, 0, #keys
  local changed_jobs = not plain and redis.call('EXISTS', MUT) == 1
  local sized = meta[15] or changed_jobs -- each may be large: what is to be read at once is known before it is
  for n = 1, sized and #keys or 0 do
    size = size + redis.call('HSTRLEN', JOBS, ids[n]) + (changed_jobs and redis.call('HSTRLEN', MUT, ids[n]) or 0)
    if size > 262144 and n > 1 then
      fit = n - 1
      break
    end
  end
  for first = 1, fit, 16 do
    local last = math.min(first + 15, fit)
    local records = redis.call('HMGET', JOBS, unpack(ids, first, last))
    local changes = changed_jobs and redis.call('HMGET', MUT, unpack(ids, first, last))
    for n = first, last do
      local record = records[n - first + 1] or ''
      local facts = changes and changes[n - first + 1] or ''
      if not sized then
        size = size + #record
        if size > 262144 and n > 1 and n <= fit then fit = n - 1 end
      end
      jobs[n * 3 - 2], jobs[n * 3 - 1], jobs[n * 3] = keys[n], record, facts
    end
    if fit < last then break end
  end
  if fit < #keys then
--@include ready
    local from_lanes = #keys - #suspects
    for n = #keys, fit + 1, -1 do
      if n > from_lanes then
        redis.call('LPUSH', SUSPECTS, keys[n])
        suspects[n - from_lanes] = nil
      else
        redis.call('LPUSH', LANES[string.sub(keys[n], 1, 1)], ids[n])
      end
      keys[n], ids[n] = nil, nil
      jobs[n * 3], jobs[n * 3 - 1], jobs[n * 3 - 2] = nil, nil, nil
    end
  end
  local leases, tokens, till = {}, {}, string.format('%d', ends)
  for n = 1, #keys do
    leases[n * 2 - 1], leases[n * 2] = till, keys[n]
    tokens[n * 2 - 1], tokens[n * 2] = ids[n], TOKEN
  end
  if #keys >= 8 and (not first_lease[1] or now % 16 == 0) then
    redis.call('ZADD', LEASED, till, LARGE, unpack(leases))
    redis.call('ZREM', LEASED, LARGE)
    redis.call('HSET', LEASE, LARGE, '', unpack(tokens))
    redis.call('HDEL', LEASE, LARGE)
  else
    redis.call('ZADD', LEASED, unpack(leases))
    redis.call('HSET', LEASE, unpack(tokens))
  end
  packed = cmsgpack.pack(jobs)
  if left then redis.call('HSET', META, 'tokens', left - #keys, 'at', NOW) end
end
if finished + recovered + promoted + #keys > 0 then
  redis.call('HSET', META, 't', NOW, 'done', string.format('%d', (meta[3] or 0) + finished), 'ft',
    string.format('%d', math.max(fencing_token, meta[13] or 0)), 'took', string.format('%d', (meta[14] or 0) + #keys))
end

local more, due, following, alarm_ms = 0, -1, '', -1
local ready = redis.call('EXISTS', R0, R1, R2) > 0
if ready and not held_back then
  more = 1
else
  if first_lease[2] then due = tonumber(first_lease[2]) end
  if #keys > 0 and (due < 0 or ends < due) then due = ends end
  if not plain then
--@include next_due
    due = next_due(due)
  end
  if ready and reopens and (due < 0 or reopens < due) then due = reopens end
  if not plain and not hold and redis.call('EXISTS', SUSPECTS, ALONE) > 0 then
    if (#suspects > 0 or alone) and not held_back then
      more = 1 -- another worker may take the next ones
    elseif due < 0 or now + 1000 < due then
      due = now + 1000
    end
  end
end
if HOT then
  if more == 1 then
    redis.call('ZADD', HOT, NOW, LABEL)
    redis.call('ZADD', DUE, string.format('%d', now + 2000), LABEL)
  else
--@include alarm
    if due >= 0 then redis.call('ZADD', DUE, string.format('%d', due), LABEL) else redis.call('ZREM', DUE, LABEL) end
    alarm_ms = alarm(now, WORKER)
  end
  following = redis.call('ZRANGE', HOT, '0', '0')[1] or ''
end
return {'ok', now, refused, packed, following, alarm_ms, more, due, room, fenced and 1 or 0, fencing_token,
  lost}
