-- keep_finished(packed, finished, refused, worker, now): what a worker tells of the jobs that it acknowledges, msgpack
-- [id, type, attempt, result, ...] or '', becomes an entry of the stream, without the refused ones. Removals came before.
local function keep_finished(packed, finished, refused, worker, now)
  if packed == '' or finished == 0 then return end
  local kept = finished_kept(now)
  local kind = kept and redis.call('TYPE', DONE).ok
  -- What a foreign hand has put in its place keeps no job from being acknowledged. TRIM says so.
  if not kept or (kind ~= 'stream' and kind ~= 'none') then return end
  if #refused > 0 then
    local told, without, gone = cmsgpack.unpack(packed), {}, {}
    for _, index in ipairs(refused) do gone[index] = true end
    for i = 1, #told, 4 do
      if not gone[(i - 1) / 4] then
        for n = i, i + 3 do without[#without + 1] = told[n] end
      end
    end
    packed = cmsgpack.pack(without)
  end
  add_finished(kept, now, worker, finished, packed)
  trim_finished(kept, now, 4)
  note_finished(kept)
end
