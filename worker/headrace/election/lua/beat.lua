-- BEAT: an idle leader shows that it lives; a busy one does so with every script.
--
-- KEYS  1 fence hash, perhaps 2 the key without which it passes, see lib/passing.lua
-- ARGV  1 epoch, 2 nonce, 3 time to live in ms
-- Returns 1, or the error FENCED <epoch> and nothing changed
-- Cost  O(1). Called by the elector.
local FENCE, OWNER = KEYS[1], KEYS[2]
--@include fenced
--@include passing

local ruling = fenced(FENCE, ARGV[1], ARGV[2], tonumber(ARGV[3]))
if ruling then return redis.error_reply('FENCED ' .. ruling) end
passing(FENCE)
return 1
