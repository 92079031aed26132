-- letter_weight(id): what a job counts besides its history if it may become a dead letter. It costs more than its bytes.
local function letter_weight(id) return 700 + redis.call('HSTRLEN', JOBS, id) end
