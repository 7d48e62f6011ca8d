-- Values
--
-- Buckets and plain windows of one caller are packed into one value: version, the last second at which any of them
-- counts, their number, name and kind of each, then for each the second from which it is stale and its numbers.
-- Beyond PACKED bytes new ones get their own values in the same format, in the packed value's key followed by their
-- name. The packed value then says until when there are such values (SPILLED), and as long as it does, every new
-- counter gets a value of its own.

-- By the number of the key: the current value; if it has to be written, its expiry or false.
local values, untils = {}, {}
local NUMBERS = { 2, 2, 3 }
local STATES = { '<I5I7I7', '<I5I7I7', '<I5I7I7I7' }
local LENGTHS = { 19, 19, 26 }

-- Logs that may be long are read when they are needed, and in parts where that is enough: the other values are read
-- now, in few calls, because a call is expensive.
local names, numbers = KEYS, nil -- the keys to read, and their numbers in KEYS
if part_count > 0 then
  local is_log = {}
  for _ = 1, part_count do
    local number
    number, at = unpack('<I2', body, at)
    is_log[number] = true
  end
  names, numbers = {}, {}
  for number, name in ipairs(KEYS) do
    if not is_log[number] then
      names[#names + 1], numbers[#numbers + 1] = name, number
    end
  end
end

-- A value of another type reads as absent.
local AT_ONCE = 1000
for first = 1, #names, AT_ONCE do
  local last = min(first + AT_ONCE - 1, #names)
  local found, missing = call('MGET', spread(names, first, last)), nil
  if first == 1 and not numbers then
    values = found
  end
  for place = 1, last - first + 1 do
    local raw = found[place]
    if not raw then
      missing, raw = missing or {}, ''
      missing[#missing + 1] = names[first + place - 1]
    end
    values[numbers and numbers[first + place - 1] or first + place - 1] = raw
  end
  if missing then
    unsound = unsound + call('EXISTS', spread(missing))
  end
end

-- Reads a value that was not read yet.
local function read_value(key)
  local raw = call('MGET', KEYS[key])[1]
  if not raw then
    unsound = unsound + call('EXISTS', KEYS[key])
    raw = ''
  end
  values[key] = raw
  return raw
end

-- Marks a value as changed. Without `till` its lifetime does not change: setting it again would cost as much as
-- writing it.
local function put(key, raw, till)
  values[key] = raw
  untils[key] = till or untils[key] or false
end

-- The lifetime of a value that counts until this second. It is somewhat longer, so that the next write need not set
-- it again.
local function with_slack(till)
  local slack = (till - second) / 4
  return till + (slack > 60 and 60 or slack < 2 and 2 or slack - slack % 1)
end
