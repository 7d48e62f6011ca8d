-- Idempotent claims.
--
-- A record: version, outcome, a digest of the request and one of its terms, when it was settled, until when it lasts;
-- then its readings, each self-contained: status and tick, taken, remaining, reset, and wait and delay if there are
-- any.

local WHOLE, HOME, VERDICT = 1, 2, 3
local RECORD = 2 -- the version
local UNDECIDED, REFUSED, PASSED = 0, 1, 2
local HEAD = '<BBc8c8I7I7'
local HEAD_LENGTH = 32
local OF_TICK = { [1] = 0, [1000] = 8, [1000000] = 16 }
local DELAYED = 32

local function read_record(key)
  local record = values[key]
  if #record >= HEAD_LENGTH and byte(record) == RECORD then
    return record
  elseif record ~= '' then
    unsound = unsound + 1
  end
  return nil
end

local function write_record(key, outcome, digest, terms, settled_at, till, readings)
  put(key, pack(HEAD, RECORD, outcome, digest, terms, settled_at, till) .. readings, ceil(till / 1000000))
end

-- A reading in the format of a record.
local function shortened(reading, limit)
  local status, taken, left, waits, reset, delay = unpack('<BI7I7I7I7I7', reading)
  local short = pack('<BI7I7I7', status + OF_TICK[limit.tick] + (delay > 0 and DELAYED or 0), taken, left, reset)
  if status == LATER then
    short = short .. pack('<I7', waits)
  end
  return delay > 0 and short .. pack('<I7', delay) or short
end

-- Whether a claim must be recorded: `Settlement::needs_record`.
local function needs_record(readings, count)
  for place = 1, count do
    local _, taken = unpack('<BI7', readings[place])
    if taken > 0 or (asks[place] ~= EXACTLY and asks[place] ~= UP_TO) then
      return true
    end
  end
  return count == 0
end

-- Whether a claim is refused, and how long it has to wait, in microseconds: `Verdict::reach`.
local function refused_for(readings, count)
  local refused, longest, shortest, any_has_room = false, -1, nil, false
  for place = 1, count do
    if asks[place] == EXACTLY then
      local status, _, _, waits = unpack('<BI7I7I7', readings[place])
      local limit = charge_limits[place]
      local span = (limit.now + waits) * limit.tick - now
      if status == NEVER then
        span = EXACT
      elseif status == SOON then
        span = 0
      end
      if modes[place] == ENFORCE and status ~= ADMITS then
        refused, longest = true, max(longest, span)
      elseif modes[place] == ANY_OF then
        any_has_room = any_has_room or status == ADMITS
        shortest = status ~= ADMITS and min(shortest or EXACT, span) or shortest
      end
    end
  end
  if shortest and not any_has_room then
    refused, longest = true, max(longest, shortest)
  end
  return refused, longest
end

-- Settles the charges that follow. Nil if they lack keys; then nothing has changed.
local function settle_charges(count, flags)
  local readings
  if flags % 2 == 1 then
    readings = settle_interacting(count)
  else
    readings = settle_independent(count)
  end
  if readings then
    close()
  else
    abandon()
  end
  return readings
end

-- Settles the claim whose record is in `key`, unless it was settled before. `after` is where the next claim begins.
local function once(count, flags)
  local op, key, digest, terms, keep, after
  op, key, digest, terms, keep, after, at = unpack('<BI2c8c8I8I4', body, at)
  after = at + after
  local record = read_record(key)
  local outcome, stored_digest, till
  if record then
    outcome, stored_digest, till = byte(record, 2), sub(record, 3, 10), unpack('<I7', record, 26)
  end
  local is_valid = record and till > now
  local verdict, passed, settled_at
  if op == VERDICT then
    local length
    length, passed, settled_at, at = unpack('<I4BI7', body, at)
    verdict = sub(body, at, at + length - 1)
    at = at + length
  elseif is_valid then
    at = after
    if stored_digest ~= digest then
      return CONFLICT, ''
    elseif outcome == UNDECIDED then
      return PENDING_VERDICT, ''
    end
    -- The outcome, its terms and its time; then the readings.
    return AGAIN, sub(record, 2, 2) .. sub(record, 11, 25) .. sub(record, HEAD_LENGTH + 1)
  end
  local readings = settle_charges(count, flags)
  if not readings then
    return LACKS_KEYS, ''
  end
  local answer = table.concat(readings)
  local is_own = is_valid and outcome == UNDECIDED and stored_digest == digest
  if verdict and keep > 0 and (not is_valid or is_own) then
    write_record(key, passed == 1 and PASSED or REFUSED, digest, terms, settled_at, now + keep, verdict)
  elseif verdict and is_own then
    put(key, '', 0)
  end
  -- A claim with a `keep` of zero only had to check whether another one was settled before.
  if op ~= VERDICT and keep > 0 then
    local refused, waits = refused_for(readings, count)
    if op == HOME and not refused then
      write_record(key, UNDECIDED, digest, terms, now, now + PENDING, '')
    elseif op == WHOLE and needs_record(readings, count) then
      for place = 1, count do
        readings[place] = shortened(readings[place], charge_limits[place])
      end
      local lifetime = refused and min(waits, keep) or keep
      write_record(key, refused and REFUSED or PASSED, digest, terms, now, now + lifetime, table.concat(readings))
    end
  end
  return FIRST, answer
end

-- Settles a claim whose charges follow.
local function settle(flags, count)
  is_apart = flags >= 32
  flags = flags % 32
  if flags % 4 >= 2 then
    ids, at = unpack('<c16', body, at)
  end
  if flags >= 4 then
    return once(count, flags)
  end
  local readings = settle_charges(count, flags)
  if not readings then
    return LACKS_KEYS, ''
  end
  return FIRST, table.concat(readings)
end

return settle, settle_groups
end
