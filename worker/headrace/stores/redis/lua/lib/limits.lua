-- allowed(now, wanted, meta): how many jobs a claim may lease under the partition's limits, when a limit that holds it back
-- opens again (nil: no limit holds, or an acknowledgement opens it), and how many jobs the rate lets go now (nil: it has
-- none). `meta` = hold, rate (jobs/s), cap (leased at once), tokens left, at ms. The bucket holds one second of the rate, at
-- least one job.
local function allowed(now, wanted, meta)
  if meta[1] == '1' then return 0 end
  local reopens, left
  if meta[3] and meta[3] ~= '' then
    wanted = math.max(0, math.min(wanted, tonumber(meta[3]) - redis.call('ZCARD', LEASED)))
  end
  if meta[2] and meta[2] ~= '' then
    local rate = tonumber(meta[2])
    left = math.min(math.max(1, rate), tonumber(meta[4] or 1) + (now - tonumber(meta[5] or now)) * rate / 1000)
    if math.floor(left) < wanted then wanted = math.floor(left) end
    if left - wanted < 1 then reopens = now + math.ceil((1 - (left - wanted)) * 1000 / rate) end
  end
  return wanted, reopens, left
end
