-- Settles claims on the counters of one slot, all of them in one step.
--
-- The files of this directory, joined in the order that script.rs says, are one script. KEYS name the values that hold counters and
-- records; ARGV[1] is the claims, as codec.rs writes them. The answer is one string. Structure and names are those of the core:
-- what differs is only how states are kept. Everything is worked out first and written last, so that a script that is refused its
-- first write has changed nothing.
--
-- Most claims ask for the same units of a few small counters. Those are settled by `simple`, which only works out what
-- the counters become, and answers with what they were: the asker runs the core on that and has every reading. All other claims are
-- settled by what `general` makes, when the first of them comes: to make functions that nobody calls would cost more than to settle.

local EXACT = 9007199254740992 -- 2^53: integers below it are exact
local ENTRIES = 10000 -- Limit::MOST_ENTRIES
local VERSION, SPILLED = 1, 2
local PACKED = 1024 -- bytes of a packed value past which new counters get keys of their own
local SPILL_SLACK = 60 -- seconds that a packed value says longer than it must that some have
local PENDING = 5000000 -- microseconds after which a verdict that was never written is given up

local BUCKET, FIXED, SLIDING, PARTS, LOG, HOLDS = 1, 2, 3, 4, 5, 6
local EXACTLY, UP_TO, REGARDLESS, RETURN, RESET, CREDIT = 0, 1, 2, 3, 4, 5
local ENFORCE, ANY_OF, SHADOW, SOFT = 0, 1, 2, 3
-- What an answer is: readings, those of the first time, none, none yet; or what the value, the states in it, or several were.
local FIRST, AGAIN, CONFLICT, UNDER_WAY, BEFORE, STATES_BEFORE, SEVERAL_BEFORE = 0, 1, 2, 3, 4, 5, 6

local KEYS, body = KEYS, ARGV[1]
local call, pcall = redis.call, redis.pcall
local spread, unpack, pack = unpack, struct.unpack, struct.pack
local byte, char, find, sub = string.byte, string.char, string.find, string.sub
local floor, ceil, min, max = math.floor, math.ceil, math.min, math.max

local now, limit_count, shape_count, claim_count, at = unpack('<I8I2I2I2', body)
local is_clock_set = now ~= 0
-- Seconds that a stale counter is kept, for a clock that steps back. One that is set by hand may go back further.
local GRACE = is_clock_set and 1000 or 1
if not is_clock_set then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end
local second = floor(now / 1000000)
local unsound = 0 -- values that were not what they should be, and count as fresh

-- Where a state that was last touched at `when` stands: still, for up to one period; past that it follows the clock.
local function stand(when, tick, period)
  if when <= tick then
    return tick, false
  elseif when - tick <= period then
    return when, false
  end
  return tick, true
end

-- The aligned period that a tick lies in. Those of a calendar came with the limit.
local function around(limit, tick)
  local bounds = limit.bounds
  if not bounds then
    local start = tick - tick % limit.period
    return start, start + limit.period
  end
  if tick < bounds[1] then
    return 0, bounds[1]
  end
  for place = 2, #bounds do
    if tick < bounds[place] then
      return bounds[place - 1], bounds[place]
    end
  end
  return bounds[#bounds], bounds[#bounds] + limit.period
end

-- The limits of all claims.
local limits = {}
for place = 1, limit_count do
  local kind, tick, paced, parts, bounds, amount, quota, period
  kind, tick, paced, parts, bounds, amount, quota, period, at = unpack('<BI4BBBI7I7I7', body, at)
  local limit = {
    kind = kind,
    tick = tick,
    paced = paced == 1,
    parts = parts,
    part = period / max(parts, 1),
    amount = amount,
    quota = quota,
    period = period,
    most = floor((EXACT - 1) / period),
    now = floor(now / tick),
    per_second = 1000000 / tick,
    full = quota * period,
  }
  if bounds > 0 then
    local list = {}
    for bound = 1, bounds do
      list[bound], at = unpack('<I7', body, at)
    end
    limit.bounds = list
  end
  limits[place] = limit
end

-- A second by which what is stale at a tick is.
local LATEST = 1099511627775 -- what five bytes hold
local function in_seconds(limit, tick)
  return min(floor(tick / limit.per_second) + 1, LATEST)
end
