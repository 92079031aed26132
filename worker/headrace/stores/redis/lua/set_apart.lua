-- SET_APART: move a key of another kind out of the way of ours, whatever it holds, as the audit has found it.
--
-- KEYS  1 the key, 2 the name that it gets, under the same hash tag
-- ARGV  1 kind that it should be, as TYPE tells it
-- Returns 1; 0 and nothing changed if it is gone, or of the right kind by now; -1 and nothing changed if the name is taken
-- Cost  O(1). Called by the audit.
local KEY, APART = KEYS[1], KEYS[2]
local kind = redis.call('TYPE', KEY).ok
if kind == 'none' or kind == ARGV[1] then return 0 end
return redis.call('RENAMENX', KEY, APART) == 1 and 1 or -1
