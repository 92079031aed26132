-- INSTALL and SETTLE: make a partition agree with a topology that is about to be written (install) or was (settle).
--
-- KEYS  1 meta hash
-- ARGV  1 epoch of the topology, 2 partition count of the version, 3 settings (JSON), 4 "install" | "settle",
--       5 create if absent (0/1)
-- Returns the state before: absent | A | D | C | T
--         absent: created active if asked. A: overwritten if its epoch is older (settle: or equal).
--         D: settings only, if its epoch is older. C, T: untouched.
-- Cost  O(1). Called by whoever promotes or configures, through headrace.lifecycle.
local META = KEYS[1]
local epoch = tonumber(ARGV[1])
local meta = redis.call('HMGET', META, 's', 'e')
local state, known = meta[1], tonumber(meta[2] or 0)
if not state then
  if ARGV[5] == '1' then redis.call('HSET', META, 's', 'A', 'e', ARGV[1], 'n', ARGV[2], 'cfg', ARGV[3]) end
  return 'absent'
end
if state == 'A' and (known < epoch or (known == epoch and ARGV[4] == 'settle')) then
  redis.call('HSET', META, 'e', ARGV[1], 'n', ARGV[2], 'cfg', ARGV[3])
elseif state == 'D' and known < epoch then
  redis.call('HSET', META, 'e', ARGV[1], 'cfg', ARGV[3])
end
return state
