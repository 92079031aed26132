-- bury(id, facts, now): a job becomes a dead letter. An id may be used again and die again: each death is a letter.
local function bury(id, facts, now)
  local died = now
  while redis.call('HEXISTS', LETTERS, id .. '@' .. died) == 1 do died = died + 1 end
  local letter = id .. '@' .. died
  redis.call('HSET', LETTERS, letter, cmsgpack.pack({redis.call('HGET', JOBS, id) or '', facts}))
  redis.call('ZADD', DEAD, died, letter)
  redis.call('HDEL', JOBS, id)
  redis.call('HDEL', MUT, id)
end
