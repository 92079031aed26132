-- finished_entry(entry): what an entry of the stream of finished jobs says, {t, w, n, data}; nil if it is of a foreign hand.
local function finished_entry(entry)
  local f = entry[2]
  local t, n = tonumber(f[2]), tonumber(f[6])
  if f[1] ~= 't' or f[3] ~= 'w' or f[5] ~= 'n' or f[7] ~= 'd' or not f[8] or not t or not n then return nil end
  return {t = t, w = f[4], n = n, data = f[8]}
end
