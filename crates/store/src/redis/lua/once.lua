-- Claims that are settled once.
--
-- A record: version, whether the verdict is in it, a digest of what was asked, when it was made, until when it holds, the answer.

local WHOLE, HOME, VERDICT = 1, 2, 3

local function recorded(key)
  local record = get(key)
  if #record >= 26 and byte(record) == VERSION then
    return record
  elseif record ~= '' then
    unsound = unsound + 1
  end
  return nil
end

local function remember(key, done, digest, till, answer)
  put(key, pack('<BBc8I8I8', VERSION, done, digest, now, till) .. answer, ceil(till / 1000000))
end

-- How long a claim that was refused has to wait, in microseconds: `Verdict::reach`. Nil if it passed or waits forever.
local function refused_for(readings, count)
  local refused, longest, shortest, any_has_room = false, -1, nil, false
  for place = 1, count do
    if asks[place] == EXACTLY then
      local said, _, _, waits = unpack('<BI7I7I7', readings[place])
      local limit = charge_limits[place]
      local span = (limit.now + waits) * limit.tick - now
      if said == NEVER then
        span = EXACT
      elseif said == SOON then
        span = 0
      end
      if modes[place] == ENFORCE and said ~= ADMITS then
        refused, longest = true, max(longest, span)
      elseif modes[place] == ANY_OF then
        any_has_room = any_has_room or said == ADMITS
        shortest = said ~= ADMITS and min(shortest or EXACT, span) or shortest
      end
    end
  end
  if shortest and not any_has_room then
    refused, longest = true, max(longest, shortest)
  end
  return refused, longest
end

-- Settles the claim whose record is in `key`, unless it was settled before. `after` is where the next claim begins.
local function once(count, flags)
  local op, key, digest, keep, after
  op, key, digest, keep, after, at = unpack('<BI2c8I8I4', body, at)
  after = at + after
  local record = recorded(key)
  local done, asked, made_at, till
  if record then
    done, asked, made_at, till = unpack('<Bc8I8I8', record, 2)
  end
  local holds = record and till > now
  if op == VERDICT then
    local length
    length, at = unpack('<I4', body, at)
    local answer = sub(body, at, at + length - 1)
    at = at + length
    if not holds or (done == 0 and asked == digest) then
      remember(key, 1, digest, now + keep, answer)
    end
  elseif holds then
    at = after
    if asked ~= digest then
      return CONFLICT, ''
    elseif done == 0 then
      return UNDER_WAY, ''
    end
    return AGAIN, pack('<I8', made_at) .. sub(record, 27)
  end
  local readings = (flags % 2 == 1) and tangled(count) or plain(count)
  close()
  local answer = table.concat(readings)
  if op ~= VERDICT then
    local refused, waits = refused_for(readings, count)
    if op == HOME and not refused then
      remember(key, 0, digest, now + PENDING, '')
    elseif op == WHOLE then
      remember(key, 1, digest, now + (refused and min(waits, keep) or keep), '\0' .. answer)
    end
  end
  return FIRST, answer
end

-- Settles a claim whose charges follow.
local function settle(flags, count)
  if flags % 4 >= 2 then
    ids, at = unpack('<c16', body, at)
  end
  if flags >= 4 then
    return once(count, flags)
  end
  local readings = flags % 2 == 1 and tangled(count) or plain(count)
  close()
  return FIRST, table.concat(readings)
end

return settle, not_so_simple
end
