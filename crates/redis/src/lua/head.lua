-- Settles claims on the counters of one slot, all of them in one step.
--
-- The files of this directory, concatenated in the order of script.rs, are one script. KEYS are the values with
-- counters and records; ARGV[1] is the claims, encoded by codec.rs. The answer is one string. Structure and names are
-- those of the core; only the storage of states differs. Everything is computed first and written last, and no key is
-- touched that is not in KEYS: a cluster refuses a call before it runs if not all of its keys are on the node, so a
-- script that fails has changed nothing. A claim that turns out to need a further key is not settled, and its caller
-- sends it again with that key.
--
-- Most claims take the same units from a few small counters. They are settled by `simple`, which only computes the
-- new states and returns the previous ones: the caller runs the core on these and gets every reading. All other
-- claims are settled by the functions that `general` creates, when the first of them arrives: creating functions that
-- are not called would cost more than the settlement.

local EXACT = 9007199254740992 -- 2^53: integers below it are exact
local ENTRIES = 10000 -- Limit::MAX_ENTRIES
local VERSION, SPILLED = 1, 2
local PACKED = 1024 -- maximum bytes of a packed value; further new counters get their own keys
local SPILL_SLACK = 60 -- seconds by which a packed value overstates how long such counters exist
local PENDING = 5000000 -- microseconds after which a pending verdict expires

local BUCKET, FIXED, SLIDING, PARTS, LOG, HOLDS = 1, 2, 3, 4, 5, 6
local EXACTLY, UP_TO, REGARDLESS, RETURN, RESET, CREDIT = 0, 1, 2, 3, 4, 5
local ENFORCE, ANY_OF, SHADOW, SOFT = 0, 1, 2, 3
-- The status of an answer: readings, the readings of the first time, a conflict, a pending verdict; or the previous
-- value, the previous states in it, or several of these; or that the claim needs keys that are not declared.
local FIRST, AGAIN, CONFLICT, PENDING_VERDICT, BEFORE, STATES_BEFORE, SEVERAL_BEFORE, LACKS_KEYS = 0, 1, 2, 3, 4, 5, 6, 7

local KEYS, body = KEYS, ARGV[1]
local call, pcall = redis.call, redis.pcall
local spread, unpack, pack = unpack, struct.unpack, struct.pack
local byte, char, find, sub = string.byte, string.char, string.find, string.sub
local floor, ceil, min, max = math.floor, math.ceil, math.min, math.max

local now, limit_count, shape_count, claim_count, part_count, at = unpack('<I8I2I2I2I2', body)
local is_clock_set = now ~= 0
-- How long a stale counter is retained, in seconds, for a clock that steps back. A clock that is set by hand may go
-- back further.
local GRACE = is_clock_set and 1000 or 1
if not is_clock_set then
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end
local second = floor(now / 1000000)
local unsound = 0 -- invalid values, which count as fresh

-- The time by which a state counts that was last changed at `when`. It stands still for up to one period; beyond that
-- it follows the clock.
local function effective_time(when, tick, period)
  if when <= tick then
    return tick, false
  elseif when - tick <= period then
    return when, false
  end
  return tick, true
end

-- The aligned period that contains a tick. Those of a calendar are part of the limit.
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
    max_count = floor((EXACT - 1) / period),
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

-- A second at which a state that is stale at this tick is stale.
local LATEST = 1099511627775 -- the maximum of five bytes
local function in_seconds(limit, tick)
  return min(floor(tick / limit.per_second) + 1, LATEST)
end
