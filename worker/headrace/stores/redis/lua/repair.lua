-- REPAIR: put right what the audit has found in an index with direct access, if it is still so.
--
-- KEYS  1 meta hash, 2-4 ready lists of lanes 0-2, 5 scheduled zset, 6 retry zset, 7 leased zset, 8 lease hash,
--       9 jobs hash, 10 mut hash, 11 park zset, 12 moving hash, 13 dead zset, 14 dead letters hash
--       standalone form also: 15 hot zset, 16 due zset
-- ARGV  1 label "version:partition", 2 which: scheduled | retry | leased | park | moving | lease | mut | dead | letters |
--       jobs | record, 3 member, 4 id of the job
-- Returns 1, or 0 and nothing changed if it is no longer so
--         A member without a record goes. Of several entries of a job one stays: the leased one, else that of a job on its
--         way between versions, else the later one of its times, else the parked one. A leased job without a lease is
--         ready again. What belongs to no record goes. A letter without a time of death gets one. A record of a closed
--         partition, and one that cannot be read and that nobody runs or moves, becomes a dead letter.
-- Cost  O(log n). Called by the audit.
local META, R0, R1, R2, SCHEDULED, RETRY, LEASED, LEASE, JOBS, MUT, PARK, MOVING = unpack(KEYS, 1, 12)
local DEAD, LETTERS = KEYS[13], KEYS[14]
local HOT, DUE = KEYS[15], KEYS[16]
local LABEL, WHICH, MEMBER, ID = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
--@include clock
--@include changes
--@include bury
--@include ready
--@include hints
--@include places
--@include readable

local function drop(name, member)
  if name == 'scheduled' then return redis.call('ZREM', SCHEDULED, member) end
  if name == 'retry' then return redis.call('ZREM', RETRY, member) end
  if name == 'park' then return redis.call('ZREM', PARK, member) end
  if name == 'moving' then return redis.call('HDEL', MOVING, member) end
  return redis.call('ZREM', LEASED, member)
end

if WHICH == 'dead' then
  if redis.call('HEXISTS', LETTERS, MEMBER) == 1 then return 0 end
  return redis.call('ZREM', DEAD, MEMBER)
elseif WHICH == 'letters' then
  if redis.call('HEXISTS', LETTERS, MEMBER) == 0 or redis.call('ZSCORE', DEAD, MEMBER) then return 0 end
  redis.call('ZADD', DEAD, string.match(MEMBER, '@(%d+)$') or server_now(redis.call('HGET', META, 't')), MEMBER)
  return 1
elseif WHICH == 'mut' then
  local changes = redis.call('HGET', MUT, MEMBER)
  if not changes or (redis.call('HEXISTS', JOBS, MEMBER) == 1 and readable_changes(changes)) then return 0 end
  return redis.call('HDEL', MUT, MEMBER)
end

local record = ID ~= '' and redis.call('HGET', JOBS, ID)
local found = {{}}
waiting_places({ID}, found)
parked_places({ID}, {kind_of(record) or false}, found)
local places, leased = found[1], false
for i = 1, #places, 2 do leased = leased or places[i] == 'leased' end
if WHICH == 'lease' then
  if leased then return 0 end
  return redis.call('HDEL', LEASE, ID)
end
if WHICH == 'jobs' or WHICH == 'record' then
  local problem = 'found in a partition that is closed'
  if WHICH == 'record' then
    problem = 'the stored record cannot be read'
    for i = 1, #places, 2 do
      if places[i] == 'moving' or places[i] == 'leased' then return 0 end
    end
    if not record or readable_record(record) then return 0 end
  elseif not record or redis.call('HGET', META, 's') ~= 'C' then
    return 0
  end
  for i = 1, #places, 2 do drop(places[i], places[i + 1]) end
  redis.call('HDEL', LEASE, ID)
  local now = server_now(redis.call('HGET', META, 't'))
  local event = {status = 'repaired', now = now, token = '', error = problem}
  bury(ID, (changed(redis.call('HGET', MUT, ID), event, redis.call('HGET', META, 'hist'))), now)
  return 1
end
if not record then
  redis.call('HDEL', LEASE, ID)
  return drop(WHICH, MEMBER)
end

local parked_elsewhere = WHICH == 'park' and redis.call('ZSCORE', PARK, MEMBER)
for i = 1, #places, 2 do parked_elsewhere = parked_elsewhere and places[i + 1] ~= MEMBER end
if parked_elsewhere then return drop('park', MEMBER) end -- under a type that is not its own

local token = redis.call('HGET', LEASE, ID)
if places[3] then
  local kept, best = 1, -2
  for i = 1, #places, 2 do
    local rank = 0
    if places[i] == 'leased' then rank = token and 1e18 or -1 end
    if places[i] == 'moving' then rank = 1e17 end
    if places[i] == 'scheduled' then rank = tonumber(redis.call('ZSCORE', SCHEDULED, places[i + 1])) end
    if places[i] == 'retry' then rank = tonumber(redis.call('ZSCORE', RETRY, places[i + 1])) end
    if rank > best then kept, best = i, rank end
  end
  for i = 1, #places, 2 do
    if i ~= kept then drop(places[i], places[i + 1]) end
  end
  if places[kept] ~= 'leased' then redis.call('HDEL', LEASE, ID) end
  return 1
end
if WHICH == 'leased' and leased and not token then
  redis.call('ZREM', LEASED, MEMBER)
  push_ready({MEMBER})
  hint_ready(server_now(redis.call('HGET', META, 't')))
  return 1
end
return 0
