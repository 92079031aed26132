-- WAKE: say that a sleeping queue has got a job, in the Cluster form, where ENQUEUE cannot.
--
-- KEYS  1 wakes stream of all queues
-- ARGV  1 queue
-- Returns nothing
-- Cost  O(1). Called by producers after an enqueue that woke a partition.
local WAKES = KEYS[1]
--@include wake

wake(ARGV[1])
