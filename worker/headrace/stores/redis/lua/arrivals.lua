-- ARRIVALS: some of the jobs that were adopted here and may still be aside where they came from.
--
-- KEYS  1 arrived hash
-- ARGV  1 jobs wanted, at most 1,000
-- Returns [id, label of the partition where it came from, ...], in no order
-- Cost  O(jobs). Called by headrace.migration.
return redis.call('HRANDFIELD', KEYS[1], math.min(tonumber(ARGV[1]), 1000), 'WITHVALUES')
