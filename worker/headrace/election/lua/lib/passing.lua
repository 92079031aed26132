-- passing(key): what is left of the election passes some days after its last use where `OWNER`, a key, is not there: nobody
-- removes it after the last candidate for something that was deleted. Elsewhere it stays, whoever may be away for how long.
local function passing(key)
  if not OWNER then return end
  if redis.call('EXISTS', OWNER) == 0 then redis.call('PEXPIRE', key, 691200000) else redis.call('PERSIST', key) end
end
