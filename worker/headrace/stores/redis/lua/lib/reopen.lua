-- reopen(freed): after leases ended early, jobs that the in-flight limit held back may be claimed again; 1 if there are any.
local function reopen(freed)
  if freed == 0 or (redis.call('HGET', META, 'cap') or '') == '' then return 0 end
  if redis.call('EXISTS', R0, R1, R2) == 0 then return 0 end
  hint_ready(server_now(redis.call('HGET', META, 't')))
  return 1
end
