-- Redis keeps a small hash or zset as one packed list. Each look-up there goes through all of it: with 128 jobs in flight
-- that was half of what a job costs. An entry of more than 64 bytes, even for a moment, makes a real table of it, which it
-- stays until it is empty (or is loaded from a file).
local LARGE = string.rep('-', 65)
