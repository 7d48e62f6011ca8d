-- Claims that are settled once.
--
-- A record: version, what became of the claim, a digest of what was asked and one of its terms, when it was made, until when it
-- holds; then its readings, each by itself readable: what it says and its tick, taken, remaining, reset, and wait and delay where
-- there are any.

local WHOLE, HOME, VERDICT = 1, 2, 3
local RECORD = 2 -- the version
local UNDECIDED, REFUSED, PASSED = 0, 1, 2
local HEAD = '<BBc8c8I7I7'
local HEAD_LENGTH = 32
local OF_TICK = { [1] = 0, [1000] = 8, [1000000] = 16 }
local DELAYED = 32

local function recorded(key)
  local record = get(key)
  if #record >= HEAD_LENGTH and byte(record) == RECORD then
    return record
  elseif record ~= '' then
    unsound = unsound + 1
  end
  return nil
end

local function remember(key, became, digest, terms, made, till, readings)
  put(key, pack(HEAD, RECORD, became, digest, terms, made, till) .. readings, ceil(till / 1000000))
end

-- A reading as it is recorded.
local function shortened(reading, limit)
  local said, taken, left, waits, reset, delay = unpack('<BI7I7I7I7I7', reading)
  local short = pack('<BI7I7I7', said + OF_TICK[limit.tick] + (delay > 0 and DELAYED or 0), taken, left, reset)
  if said == LATER then
    short = short .. pack('<I7', waits)
  end
  return delay > 0 and short .. pack('<I7', delay) or short
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
  local op, key, digest, terms, keep, after
  op, key, digest, terms, keep, after, at = unpack('<BI2c8c8I8I4', body, at)
  after = at + after
  local record = recorded(key)
  local became, asked, till
  if record then
    became, asked, till = byte(record, 2), sub(record, 3, 10), unpack('<I7', record, 26)
  end
  local holds = record and till > now
  if op == VERDICT then
    local length, passed, made
    length, passed, made, at = unpack('<I4BI7', body, at)
    local readings = sub(body, at, at + length - 1)
    at = at + length
    if not holds or (became == UNDECIDED and asked == digest) then
      remember(key, passed == 1 and PASSED or REFUSED, digest, terms, made, now + keep, readings)
    end
  elseif holds then
    at = after
    if asked ~= digest then
      return CONFLICT, ''
    elseif became == UNDECIDED then
      return UNDER_WAY, ''
    end
    -- What became of it, its terms and when it was made; then the readings.
    return AGAIN, sub(record, 2, 2) .. sub(record, 11, 25) .. sub(record, HEAD_LENGTH + 1)
  end
  local readings = (flags % 2 == 1) and tangled(count) or plain(count)
  close()
  local answer = table.concat(readings)
  -- One that is kept for no time at all only had to know whether another was settled before.
  if op ~= VERDICT and keep > 0 then
    local refused, waits = refused_for(readings, count)
    if op == HOME then
      remember(key, UNDECIDED, digest, terms, now, now + PENDING, '')
    elseif op == WHOLE then
      for place = 1, count do
        readings[place] = shortened(readings[place], charge_limits[place])
      end
      local lasts = refused and min(waits, keep) or keep
      remember(key, refused and REFUSED or PASSED, digest, terms, now, now + lasts, table.concat(readings))
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
