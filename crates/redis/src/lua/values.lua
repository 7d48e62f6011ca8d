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

-- Reads all values in few calls, because a call is expensive. A value of another type reads as absent.
local AT_ONCE = 1000
for first = 1, #KEYS, AT_ONCE do
  local last = min(first + AT_ONCE - 1, #KEYS)
  local found, missing = call('MGET', spread(KEYS, first, last)), nil
  if first == 1 then
    values = found
  end
  for place = 1, last - first + 1 do
    local raw = found[place]
    if not raw then
      missing, raw = missing or {}, ''
      missing[#missing + 1] = KEYS[first + place - 1]
    end
    values[first + place - 1] = raw
  end
  if missing then
    unsound = unsound + call('EXISTS', spread(missing))
  end
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
