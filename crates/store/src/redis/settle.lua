-- Settles claims on the counters of one slot, all of them in one step.
--
-- KEYS name the values that hold counters and records; ARGV[1] is the claims, as codec.rs writes them. The answer is one string.
-- Structure and names are those of the core (settle.rs, settle/tangled.rs, algorithm/*.rs): what differs is only how states are
-- kept. Everything is worked out first and written last, so that a script that is refused its first write has changed nothing.
--
-- Most claims ask for the same units of a few small counters in one value. Those are settled by `simple`, which only works out what
-- the counters become, and answers with what they were: the asker runs the core on that and has every reading.

local EXACT = 9007199254740992 -- 2^53: integers below it are exact
local ENTRIES = 10000 -- Limit::MOST_ENTRIES
local VERSION, SPILLED = 1, 2
local PACKED = 1024 -- bytes of a packed value past which new counters get keys of their own
local SPILL_SLACK = 60 -- seconds that a packed value says longer than it must that some have
local PENDING = 5000000 -- microseconds after which a verdict that was never written is given up

local BUCKET, FIXED, SLIDING, PARTS, LOG, HOLDS = 1, 2, 3, 4, 5, 6
local EXACTLY, UP_TO, REGARDLESS, RETURN = 0, 1, 2, 3
local ENFORCE, ANY_OF, SHADOW, SOFT = 0, 1, 2, 3

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

---------------------------------------------------------------------------------------------------------------------------------
-- Limits and time
---------------------------------------------------------------------------------------------------------------------------------

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

---------------------------------------------------------------------------------------------------------------------------------
-- Algorithms: each made when the first claim needs it
---------------------------------------------------------------------------------------------------------------------------------

local function bucket()
  local function drained(limit, ticks, level)
    if limit.amount == 0 and ticks >= limit.period then
      return level
    end
    return ticks * limit.amount
  end
  local function ticks_to_drain(limit, level)
    if level == 0 then
      return 0
    elseif limit.amount == 0 then
      return limit.period
    end
    return ceil(level / limit.amount)
  end
  return {
    fresh = function(slot)
      slot.level, slot.at = 0, 0
    end,
    load = function(slot, raw, from)
      slot.level, slot.at = unpack('<I7I7', raw, from)
      return slot.level < EXACT and slot.at < EXACT
    end,
    save = function(slot)
      return slot.level, slot.at
    end,
    advance = function(slot, limit)
      local tick, moved = stand(slot.at, limit.now, limit.period)
      if not moved then
        local back = drained(limit, tick - slot.at, slot.level)
        if back == 0 and limit.amount == 0 then
          return tick, moved
        end
        slot.level = slot.level - min(slot.level, back)
      end
      slot.at = tick
      return tick, moved
    end,
    available = function(slot, limit)
      local room = limit.quota * limit.period - slot.level
      return room >= 0 and floor(room / limit.period) or nil
    end,
    spend = function(slot, limit, units)
      units = min(units, limit.most)
      if units > 0 then
        slot.level = min(slot.level + units * limit.period, EXACT - 1)
        slot.at = slot.now
      end
      return units
    end,
    give_back = function(slot, limit, units, taken_at)
      local taken = min(units, limit.most) * limit.period
      local kept = taken - min(drained(limit, max(slot.now - taken_at, 0), taken), taken)
      local back = min(kept, slot.level)
      slot.level = slot.level - back
      return ceil(back / limit.period)
    end,
    -- What is told of moments is told from the limit's `now` on, which keeps it exact however far ahead it is.
    wait = function(slot, limit, units)
      local fits = (limit.quota - units) * limit.period
      return slot.at - limit.now + ticks_to_drain(limit, max(slot.level - fits, 0))
    end,
    reset = function(slot, limit)
      return slot.at - limit.now + ticks_to_drain(limit, slot.level)
    end,
    stale_at = function(slot, limit)
      return slot.at + ticks_to_drain(limit, slot.level)
    end,
    delay = function(slot, limit)
      return limit.paced and max(slot.at - slot.now + ticks_to_drain(limit, slot.level), 0) or 0
    end,
  }
end

local function no_delay()
  return 0
end

local function fixed_window()
  local function stale_at(slot, limit)
    local _, after = around(limit, slot.start)
    return after
  end
  local function reset(slot, limit)
    return stale_at(slot, limit) - limit.now
  end
  return {
    fresh = function(slot)
      slot.start, slot.used = 0, 0
    end,
    load = function(slot, raw, from)
      slot.start, slot.used = unpack('<I7I7', raw, from)
      return slot.start < EXACT and slot.used < EXACT
    end,
    save = function(slot)
      return slot.start, slot.used
    end,
    advance = function(slot, limit)
      local tick, moved = stand(slot.start, limit.now, limit.period)
      local start = around(limit, tick)
      if start ~= slot.start and not moved then
        slot.used = 0
      end
      slot.start = start
      return tick, moved
    end,
    available = function(slot, limit)
      return slot.used <= limit.amount and limit.amount - slot.used or nil
    end,
    spend = function(slot, limit, units)
      units = min(units, limit.most)
      slot.used = min(slot.used + units, limit.most)
      return units
    end,
    give_back = function(slot, limit, units, taken_at)
      if around(limit, taken_at) ~= slot.start then
        return 0
      end
      local back = min(units, slot.used)
      slot.used = slot.used - back
      return back
    end,
    wait = reset,
    reset = reset,
    stale_at = stale_at,
    delay = no_delay,
  }
end

-- In one part (two counts, packed with others) or in several (a value of its own). The counts are slot[0] to slot[parts].
local function sliding_window()
  local function part(limit, tick)
    if limit.parts == 1 then
      return around(limit, tick)
    end
    local start = tick - tick % limit.part
    return start, start + limit.part
  end
  local function sum(slot, from, parts)
    local counted = 0
    for place = from, parts do
      counted = counted + slot[place]
    end
    return counted
  end
  return {
    fresh = function(slot, limit)
      slot.start = 0
      for place = 0, limit.parts do
        slot[place] = 0
      end
    end,
    load = function(slot, raw, from, limit)
      slot.start = unpack('<I7', raw, from)
      local sound = slot.start < EXACT
      for place = 0, limit.parts do
        slot[place] = unpack('<I7', raw, from + 7 + 7 * place)
        sound = sound and slot[place] < EXACT
      end
      return sound
    end,
    save = function(slot)
      return slot.start, slot[0], slot[1]
    end,
    store = function(slot, limit)
      local counts = { pack('<BI7', VERSION, slot.start) }
      for place = 0, limit.parts do
        counts[place + 2] = pack('<I7', slot[place])
      end
      return table.concat(counts)
    end,
    length = function(limit)
      return 8 + 7 * (limit.parts + 1)
    end,
    advance = function(slot, limit)
      local tick, moved = stand(slot.start, limit.now, limit.period)
      local start = part(limit, tick)
      if not moved then
        local parts, rolled = limit.parts, 0
        while slot.start < start and rolled <= parts do
          for place = 1, parts do
            slot[place - 1] = slot[place]
          end
          slot[parts] = 0
          local _, after = part(limit, slot.start)
          slot.start = after
          rolled = rolled + 1
        end
      end
      slot.start = start
      return tick, moved
    end,
    available = function(slot, limit)
      local start, after = part(limit, slot.now)
      local carried = floor(slot[0] * (after - slot.now) / (after - start))
      local room = limit.amount - carried - sum(slot, 1, limit.parts)
      return room >= 0 and room or nil
    end,
    spend = function(slot, limit, units)
      units = min(units, limit.most)
      slot[limit.parts] = min(slot[limit.parts] + units, limit.most)
      return units
    end,
    give_back = function(slot, limit, units, taken_at)
      local from = part(limit, taken_at)
      local start = slot.start
      for place = limit.parts, 0, -1 do
        if start == from then
          local back = min(units, slot[place])
          slot[place] = slot[place] - back
          return back
        elseif start <= from then
          return 0
        end
        start = part(limit, start - 1)
      end
      return 0
    end,
    wait = function(slot, limit, units)
      local room = limit.amount - units
      local start, after = part(limit, slot.start)
      for rolled = 0, limit.parts do
        local oldest = slot[rolled]
        local left = room - sum(slot, rolled + 1, limit.parts)
        if left >= 0 then
          local ticks = after - start
          if oldest > left then
            ticks = ceil((left + 1) * (after - start) / oldest) - 1
          end
          return after - ticks - limit.now
        end
        start, after = part(limit, after)
      end
      return after - limit.now
    end,
    reset = function(slot, limit)
      local _, after = around(limit, slot.now)
      return after - limit.now
    end,
    stale_at = function(slot, limit)
      local _, after = part(limit, slot.start)
      if not limit.bounds then
        return after + limit.part * limit.parts
      end
      _, after = part(limit, after)
      return after
    end,
    delay = no_delay,
  }
end

-- A value of its own: the total, then tick and units of each entry, oldest first. `raw` is the entries alone.
local function sliding_log()
  local SIZE = 14
  local function entry(slot, place) -- from 0
    local tick, units = unpack('<I7I7', slot.raw, place * SIZE + 1)
    return tick, units
  end
  local function count(slot)
    return #slot.raw / SIZE
  end
  local function drop_over(slot)
    slot.raw = sub(slot.raw, slot.over * SIZE + 1)
    slot.total = slot.total - slot.over_units
    slot.over, slot.over_units = 0, 0
  end
  local function stale_at(slot, limit)
    local last = count(slot)
    return last > 0 and entry(slot, last - 1) + limit.period or 0
  end
  return {
    fresh = function(slot)
      slot.raw, slot.total, slot.over, slot.over_units = '', 0, 0, 0
    end,
    load = function(slot, raw)
      slot.total = unpack('<I7', raw, 2)
      slot.raw, slot.over, slot.over_units = sub(raw, 9), 0, 0
      local entries = count(slot)
      if entries ~= floor(entries) or entries > ENTRIES or slot.total >= EXACT then
        return false
      end
      return entries == 0 or entry(slot, entries - 1) < EXACT
    end,
    store = function(slot)
      return pack('<BI7', VERSION, slot.total) .. slot.raw
    end,
    length = function()
      return 8
    end,
    advance = function(slot, limit)
      local newest = count(slot) > 0 and entry(slot, count(slot) - 1) or 0
      local tick, moved = stand(newest, limit.now, limit.period)
      if moved then
        local ahead, kept = 0, count(slot)
        while kept > 0 do
          local when, units = entry(slot, kept - 1)
          if when < tick then
            break
          end
          ahead, kept = ahead + units, kept - 1
        end
        slot.raw = sub(slot.raw, 1, kept * SIZE) .. pack('<I7I7', tick, ahead)
      end
      slot.over, slot.over_units = 0, 0
      local entries = count(slot)
      while slot.over < entries do
        local when, units = entry(slot, slot.over)
        if when + limit.period > tick then
          break
        end
        slot.over, slot.over_units = slot.over + 1, slot.over_units + units
      end
      if slot.over_units > slot.total then
        unsound = unsound + 1
        slot.raw, slot.total, slot.over, slot.over_units = '', 0, 0, 0
      end
      return tick, moved
    end,
    available = function(slot, limit)
      local room = limit.amount - (slot.total - slot.over_units)
      return room >= 0 and room or nil
    end,
    spend = function(slot, limit, units)
      units = min(units, limit.most)
      if units > 0 then
        drop_over(slot)
      end
      local counted = min(units, limit.most - min(slot.total, limit.most))
      if counted > 0 then
        slot.total = slot.total + counted
        local entries = count(slot)
        local newest, more = 0, 0
        if entries > 0 then
          newest, more = entry(slot, entries - 1)
        end
        if entries > 0 and (newest == slot.now or entries >= ENTRIES) then
          slot.raw = sub(slot.raw, 1, (entries - 1) * SIZE) .. pack('<I7I7', slot.now, more + counted)
        else
          slot.raw = slot.raw .. pack('<I7I7', slot.now, counted)
        end
      end
      return units
    end,
    give_back = function(slot, limit, units, taken_at)
      local low, high = 0, count(slot)
      while low < high do
        local middle = floor((low + high) / 2)
        if entry(slot, middle) < taken_at then
          low = middle + 1
        else
          high = middle
        end
      end
      if low >= count(slot) or low < slot.over then
        return 0
      end
      local when, there = entry(slot, low)
      if when ~= taken_at then
        return 0
      end
      local back = min(units, there)
      local left = back < there and pack('<I7I7', when, there - back) or ''
      slot.raw = sub(slot.raw, 1, low * SIZE) .. left .. sub(slot.raw, (low + 1) * SIZE + 1)
      slot.total = max(slot.total - back, slot.over_units)
      if back > 0 then
        drop_over(slot)
      end
      return back
    end,
    wait = function(slot, limit, units)
      local room = limit.amount - units
      local left = slot.total - slot.over_units
      for place = slot.over, count(slot) - 1 do
        local when, there = entry(slot, place)
        left = left - there
        if left <= room then
          return when + limit.period - limit.now
        end
      end
      return nil
    end,
    reset = function(slot, limit)
      return max(stale_at(slot, limit), slot.now) - limit.now
    end,
    stale_at = stale_at,
    delay = no_delay,
  }
end

-- A value of its own: when it changed, then expiry and name of each hold, soonest expiry first. `raw` is the holds alone.
local function concurrency()
  local SIZE = 23
  local function expires(slot, place) -- from 0
    return (unpack('<I7', slot.raw, place * SIZE + 1))
  end
  local function count(slot)
    return #slot.raw / SIZE
  end
  -- The place of the first hold that expires after `tick`.
  local function first_after(slot, tick)
    local low, high = 0, count(slot)
    while low < high do
      local middle = floor((low + high) / 2)
      if expires(slot, middle) <= tick then
        low = middle + 1
      else
        high = middle
      end
    end
    return low
  end
  -- Where the claim's hold begins in `raw`, if it has one that lives.
  local function hold(slot, by)
    local from = slot.expired * SIZE + 1
    while true do
      local found = find(slot.raw, by, from, true)
      if not found or (found - 1) % SIZE == 7 then
        return found and found - 7
      end
      from = found + 1
    end
  end
  local function drop_expired(slot)
    slot.raw = sub(slot.raw, slot.expired * SIZE + 1)
    slot.expired = 0
  end
  local function release(slot, by)
    local found = hold(slot, by)
    if found then
      slot.raw = sub(slot.raw, 1, found - 1) .. sub(slot.raw, found + SIZE)
    end
  end
  local function stale_at(slot)
    local last = count(slot)
    return last > 0 and expires(slot, last - 1) or 0
  end
  return {
    fresh = function(slot)
      slot.raw, slot.at, slot.expired = '', 0, 0
    end,
    load = function(slot, raw)
      slot.at = unpack('<I7', raw, 2)
      slot.raw, slot.expired = sub(raw, 9), 0
      local holds = count(slot)
      if holds ~= floor(holds) or holds > ENTRIES or slot.at >= EXACT then
        return false
      end
      return holds == 0 or expires(slot, holds - 1) < 2 * EXACT
    end,
    store = function(slot)
      return pack('<BI7', VERSION, slot.at) .. slot.raw
    end,
    length = function()
      return 8
    end,
    holds = function(slot, by)
      return hold(slot, by) ~= nil
    end,
    advance = function(slot, limit)
      local tick, moved = stand(slot.at, limit.now, limit.period)
      if moved then
        slot.at = tick
        local latest, holds = tick + limit.period, {}
        for place = 0, count(slot) - 1 do
          local name = sub(slot.raw, place * SIZE + 8, (place + 1) * SIZE)
          holds[place + 1] = pack('<I7c16', min(expires(slot, place), latest), name)
        end
        slot.raw = table.concat(holds)
      end
      slot.expired = first_after(slot, tick)
      return tick, moved
    end,
    available = function(slot, limit)
      local room = limit.amount - (count(slot) - slot.expired)
      return room >= 0 and room or nil
    end,
    spend = function(slot, limit, units, by)
      if units == 0 then
        return 0
      end
      drop_expired(slot)
      release(slot, by)
      if count(slot) >= ENTRIES then
        slot.raw = sub(slot.raw, SIZE + 1)
      end
      local expiry = slot.now + limit.period
      local before = first_after(slot, expiry) * SIZE
      slot.raw = sub(slot.raw, 1, before) .. pack('<I7c16', expiry, by) .. sub(slot.raw, before + 1)
      slot.at = slot.now
      return 1
    end,
    give_back = function(slot, _, units, _, by)
      if units == 0 or not hold(slot, by) then
        return 0
      end
      drop_expired(slot)
      release(slot, by)
      slot.at = slot.now
      return 1
    end,
    wait = function(slot, limit, units)
      local too_many = count(slot) - slot.expired - (limit.amount - units)
      if too_many > count(slot) - slot.expired then
        return nil
      end
      return expires(slot, slot.expired + too_many - 1) - limit.now
    end,
    reset = function(slot, limit)
      return max(stale_at(slot), slot.now) - limit.now
    end,
    stale_at = stale_at,
    delay = no_delay,
  }
end

local MAKERS = { bucket, fixed_window, sliding_window, sliding_window, sliding_log, concurrency }
local made = {}

local function algorithm_of(kind)
  local algorithm = made[kind]
  if not algorithm then
    algorithm = MAKERS[kind]()
    made[kind] = algorithm
  end
  return algorithm
end

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

---------------------------------------------------------------------------------------------------------------------------------
-- Values
--
-- Buckets and plain windows of one caller are packed into one value: version, the last second at which any of them matters, how
-- many they are, name and kind of each, then for each the second from which it is stale and its numbers. Past PACKED bytes new ones
-- get values of their own in the same form; the packed value then says until when there are some (SPILLED).
---------------------------------------------------------------------------------------------------------------------------------

local values, untils = {}, {} -- by key: as it is now; until when it lives, if it has to be written
local NUMBERS = { 2, 2, 3 }
local STATES = { '<I5I7I7', '<I5I7I7', '<I5I7I7I7' }
local LENGTHS = { 19, 19, 26 }

-- Counts a value of another type, which reads as if there were none.
local function of_another_type(key)
  if type(pcall('STRLEN', key)) == 'table' then
    unsound = unsound + 1
  end
  return ''
end

-- All values in few calls: a call costs more than what it does.
local AT_ONCE = 1000
for first = 1, #KEYS, AT_ONCE do
  local found = call('MGET', spread(KEYS, first, min(first + AT_ONCE - 1, #KEYS)))
  for place = 1, #found do
    local key = KEYS[first + place - 1]
    values[key] = found[place] or of_another_type(key)
  end
end

local function get(key)
  local raw = values[key]
  if not raw then
    raw = call('MGET', key)[1] or of_another_type(key)
    values[key] = raw
  end
  return raw
end

local function put(key, raw, till)
  values[key], untils[key] = raw, till
end

---------------------------------------------------------------------------------------------------------------------------------
-- Simple claims
---------------------------------------------------------------------------------------------------------------------------------

-- What the simple claims of a rule set have in common: limits, modes, and how their value is written.
local shapes = {}
for place = 1, shape_count do
  local count, is_named
  count, is_named, at = unpack('<BB', body, at)
  local shape = { count = count, length = 7 + 17 * count, modes = {}, offsets = {} }
  local format, offset = { '<BI5Bc' .. 17 * count }, 5
  for charge = 1, count do
    local which, mode
    which, mode, at = unpack('<I2B', body, at)
    local limit = limits[which]
    local kind = limit.kind
    shape[charge], shape.modes[charge], shape.offsets[charge] = limit, mode, offset
    shape.has_any_of = shape.has_any_of or mode == ANY_OF
    format[charge + 1] = sub(STATES[kind], 2)
    shape.length = shape.length + LENGTHS[kind]
    offset = offset + 1 + NUMBERS[kind]
    if kind ~= BUCKET and not limit.start then
      limit.start, limit.after = around(limit, limit.now)
      local _, after_next = around(limit, limit.after)
      limit.stale = in_seconds(limit, kind == FIXED and limit.after or after_next)
      limit.before = around(limit, limit.start - 1)
      limit.left, limit.whole = limit.after - limit.now, limit.after - limit.start
    end
  end
  shape.format, shape.last = table.concat(format), offset - 1
  shape.names_format = '<c' .. 17 * count
  if is_named == 0 then
    shape.names, at = unpack(shape.names_format, body, at)
  end
  shapes[place] = shape
end

-- Brings a counter up to now in place, and says whether there is room; nil if that is not simple. Here and in `take`, which every
-- request comes by, there are no calls: `x - x % 1` is floor(x).
local function look(limit, state, offset, units)
  local kind, one, two = limit.kind, state[offset + 1], state[offset + 2]
  if kind == BUCKET then
    local tick, amount = limit.now, limit.amount
    if two > tick or amount == 0 or one >= EXACT then
      return nil
    end
    one = one - (tick - two) * amount
    if one < 0 then
      one = 0
    end
    state[offset + 1], state[offset + 2] = one, tick
    return units * limit.period <= limit.full - one
  end
  local start = limit.start
  if one > start or two >= EXACT then
    return nil
  elseif kind == FIXED then
    if one < start then
      state[offset + 1], state[offset + 2], two = start, 0, 0
    end
    return units <= limit.amount - two
  end
  local three = state[offset + 3]
  if three >= EXACT then
    return nil
  elseif one < start then
    two, three = one == limit.before and three or 0, 0
    state[offset + 1], state[offset + 2], state[offset + 3] = start, two, three
  end
  local carried = two * limit.left / limit.whole
  return units <= limit.amount - three - (carried - carried % 1)
end

-- Takes the units, and sets the second from which the counter is stale.
local function take(limit, state, offset, units)
  local most = limit.most
  if units > most then
    units = most
  end
  local kind = limit.kind
  if kind == BUCKET then
    local level, amount = state[offset + 1] + units * limit.period, limit.amount
    if level >= EXACT then
      level = EXACT - 1
    end
    state[offset + 1] = level
    local over = level % amount
    local stale = (limit.now + (level - over) / amount + (over > 0 and 1 or 0)) / limit.per_second
    stale = stale - stale % 1 + 1
    state[offset] = stale < LATEST and stale or LATEST
  else
    local place = offset + kind -- the second number of a fixed window, the third of a sliding one
    local count = state[place] + units
    state[place] = count < most and count or most
    state[offset] = limit.stale
  end
end

-- Settles a claim for the same units of each counter. Gives what the states were; nil if it is not as simple as it looked, and then
-- nothing has changed.
local function simple(shape, key, units, names)
  local raw, count = get(key), shape.count
  local state
  if #raw == shape.length then
    -- These counters and no others.
    state = { unpack(shape.format, raw) }
    if state[4] ~= names or state[1] ~= VERSION or state[3] ~= count then
      return nil
    end
  elseif raw == '' then
    state = { VERSION, 0, count, names }
    for place = 5, shape.last do
      state[place] = 0
    end
  else
    return nil
  end
  local offsets, modes = shape.offsets, shape.modes
  local passes, any_has_room, all_pay = true, not shape.has_any_of, true
  for place = 1, count do
    local room, mode = look(shape[place], state, offsets[place], units), modes[place]
    if room == nil then
      return nil
    elseif room then
      any_has_room = any_has_room or mode == ANY_OF
    else
      passes = passes and mode ~= ENFORCE
      all_pay = all_pay and mode == SOFT
    end
  end
  if not passes or not any_has_room or units == 0 then
    return raw
  elseif not all_pay then
    -- One that does not pay must stay as it is written.
    return nil
  end
  local till = 0
  for place = 1, count do
    local offset = offsets[place]
    take(shape[place], state, offset, units)
    if state[offset] > till then
      till = state[offset]
    end
  end
  state[2] = till
  put(key, pack(shape.format, spread(state, 1, shape.last)), till)
  return raw
end

---------------------------------------------------------------------------------------------------------------------------------
-- States of the claim under way
---------------------------------------------------------------------------------------------------------------------------------

local opened, opened_values = {}, {} -- of this claim: slots in their order and by key and id, values by key

-- A packed value, to be taken apart.
local function packed(key)
  local raw = get(key)
  local value = { key = key, raw = raw, first = 8, entries = 0, spilled = 0 }
  if raw == '' then
    return value
  end
  local version, entries, length = byte(raw), nil, nil
  if version == VERSION and #raw >= 7 then
    entries = byte(raw, 7)
  elseif version == SPILLED and #raw >= 12 then
    value.spilled, entries, value.first = unpack('<I5', raw, 7), byte(raw, 12), 13
  end
  if entries then
    length = value.first - 1 + 17 * entries
    for place = 1, entries do
      length = length + (LENGTHS[byte(raw, value.first + 17 * place - 1) or 0] or #raw)
    end
  end
  if length ~= #raw then
    unsound = unsound + 1
    value.raw, value.first, value.spilled = '', 8, 0
    return value
  end
  value.entries = entries
  return value
end

-- Where the state of this name is in a packed value, if it is there.
local function place_of(value, id)
  local raw, first = value.raw, value.first
  local found = find(raw, id, first, true)
  while found and (found - first) % 17 ~= 0 do
    found = find(raw, id, found + 1, true)
  end
  if not found or found >= first + 17 * value.entries then
    return nil
  end
  local place = first + 17 * value.entries
  for entry = first, found - 1, 17 do
    place = place + LENGTHS[byte(raw, entry + 16)]
  end
  return place, byte(raw, found + 16)
end

local function lend_packed(key, id, limit)
  local value = opened_values[key]
  if not value then
    value = packed(key)
    opened_values[key] = value
  end
  local place, kind = place_of(value, id)
  local home = value
  if not place and value.spilled > second then
    local own = packed(key .. id)
    place, kind = place_of(own, id)
    if place then
      home, own.packed = own, value
      opened_values[own.key] = own
    end
  end
  local slot = { id = id, limit = limit, home = home, changed = false }
  if place then
    if kind == limit.kind and limit.algorithm.load(slot, home.raw, place + 5, limit) then
      return slot
    end
    unsound = unsound + 1
  end
  limit.algorithm.fresh(slot, limit)
  return slot
end

local function lend_large(key, limit)
  local slot, raw, algorithm = { key = key, limit = limit, changed = false }, get(key), limit.algorithm
  if raw ~= '' then
    local least = algorithm.length(limit)
    local is_long = #raw == least or (#raw > least and limit.kind ~= PARTS)
    if is_long and byte(raw) == VERSION and algorithm.load(slot, raw, 2, limit) then
      return slot
    end
    unsound = unsound + 1
  end
  algorithm.fresh(slot, limit)
  return slot
end

-- Lends the slot of a charge and brings it up to now.
local function open(key, id, limit)
  limit.algorithm = limit.algorithm or algorithm_of(limit.kind)
  local name = key .. id
  local slot = opened[name]
  if slot then
    return slot
  end
  slot = limit.kind <= SLIDING and lend_packed(key, id, limit) or lend_large(key, limit)
  opened[name], opened[#opened + 1] = slot, slot
  local tick, moved = limit.algorithm.advance(slot, limit)
  slot.now, slot.changed = tick, moved
  return slot
end

local function stale_second(slot)
  return in_seconds(slot.limit, slot.limit.algorithm.stale_at(slot, slot.limit))
end

-- Writes a packed value anew: what no charge changed and still matters, then what changed.
local function repack(value, changed)
  local names, states, till, size = {}, {}, 0, 0
  local function add(name, state, stale)
    names[#names + 1], states[#states + 1] = name, state
    till, size = max(till, stale), size + #name + #state
  end
  local raw, place = value.raw, value.first + 17 * value.entries
  for entry = value.first, value.first + 17 * value.entries - 1, 17 do
    local length, stale = LENGTHS[byte(raw, entry + 16)], unpack('<I5', raw, place)
    local id = sub(raw, entry, entry + 15)
    if changed[id] then
      local slot = changed[id]
      add(id .. char(slot.limit.kind), slot.state, slot.stale)
      changed[id] = nil
    elseif stale + GRACE > second then
      add(sub(raw, entry, entry + 16), sub(raw, place, place + length - 1), stale)
    end
    place = place + length
  end
  local spills = value.spilled
  for _, slot in ipairs(changed) do
    if changed[slot.id] then
      local name = slot.id .. char(slot.limit.kind)
      if size + 43 > PACKED then
        put(value.key .. slot.id, pack('<BI5B', VERSION, slot.stale, 1) .. name .. slot.state, slot.stale)
        spills = max(spills, slot.stale + SPILL_SLACK)
      else
        add(name, slot.state, slot.stale)
      end
    end
  end
  local head
  if spills > second then
    till = max(till, spills)
    head = pack('<BI5I5B', SPILLED, till, spills, #names)
  else
    head = pack('<BI5B', VERSION, till, #names)
  end
  put(value.key, head .. table.concat(names) .. table.concat(states), till)
end

-- Takes back what was lent for the claim under way.
local function close()
  local changes = {} -- by packed value: slots, in their order and by their ids
  for _, slot in ipairs(opened) do
    if slot.changed then
      slot.stale = stale_second(slot)
      local home = slot.home
      if home then
        slot.state = pack(STATES[slot.limit.kind], slot.stale, slot.limit.algorithm.save(slot))
        local list = changes[home] or {}
        changes[home] = list
        list[#list + 1], list[slot.id] = slot, slot
        -- A packed value must know how long those that spilled from it matter.
        local from = home.packed
        if from and slot.stale > from.spilled then
          from.spilled = slot.stale + SPILL_SLACK
          changes[from] = changes[from] or {}
        end
      else
        put(slot.key, slot.limit.algorithm.store(slot, slot.limit), slot.stale)
      end
    end
  end
  for value, changed in pairs(changes) do
    repack(value, changed)
  end
  opened, opened_values = {}, {}
end

---------------------------------------------------------------------------------------------------------------------------------
-- Settling
---------------------------------------------------------------------------------------------------------------------------------

local ids = nil -- the name of the claim under way

local function has_room(slot, limit, units)
  local left = limit.algorithm.available(slot, limit)
  return left ~= nil and units <= left
end

local function admits(slot, limit, units)
  if limit.kind == HOLDS and limit.algorithm.holds(slot, ids) then
    return true
  end
  return has_room(slot, limit, units)
end

local function spend(slot, limit, units)
  local taken = limit.algorithm.spend(slot, limit, units, ids)
  if taken > 0 then
    slot.changed = true
  end
  return taken
end

-- What a reading says: it admits, or there is room soon, or from some tick on, or never.
local ADMITS, SOON, LATER, NEVER = 1, 0, 2, 4

-- When there would be room: what to say, and ticks from the limit's now on.
local function wait(slot, limit, units)
  if has_room(slot, limit, units) then
    return SOON, 0
  elseif units > limit.quota then
    return NEVER, 0
  end
  local ticks = limit.algorithm.wait(slot, limit, units)
  if not ticks then
    return SOON, 0
  end
  return LATER, max(ticks, 0)
end

-- A reading: what it says, taken, remaining, wait, reset, delay.
local function read(slot, limit, admitted, taken, delay, needed)
  local said, waits = ADMITS, 0
  if not admitted then
    said, waits = wait(slot, limit, needed)
  end
  local algorithm = limit.algorithm
  local left = algorithm.available(slot, limit) or 0
  local reset = algorithm.reset(slot, limit)
  -- Sums of what somebody else wrote may be anything.
  local most = EXACT - 1
  return pack('<BI7I7I7I7I7', said, min(taken, most), min(left, most), waits, max(reset, 0), delay)
end

-- Charges of the claim under way, in their order.
local slots, charge_limits, units_of, modes, asks, taken_ats, admitted = {}, {}, {}, {}, {}, {}, {}

local function charge(place)
  local key, which, how, units, id
  key, which, how, units, id, at = unpack('<I2I2BI7c16', body, at)
  local limit = limits[which]
  local mode = how % 4
  charge_limits[place], units_of[place], modes[place] = limit, units, mode
  slots[place] = open(KEYS[key], id, limit)
  asks[place] = (how - mode) / 4
  if asks[place] == RETURN then
    taken_ats[place], at = unpack('<I7', body, at) -- in microseconds
  end
end

-- Settles charges that only ask, each of a counter of its own.
local function vote_and_pay(count)
  local refused, any_of = false, nil
  for place = 1, count do
    local mode = modes[place]
    local room = admits(slots[place], charge_limits[place], units_of[place])
    admitted[place] = room
    if mode == ENFORCE then
      refused = refused or not room
    elseif mode == ANY_OF then
      any_of = any_of or room
    end
  end
  local passes = not refused and any_of ~= false
  local readings = {}
  for place = 1, count do
    local slot, limit, units, room = slots[place], charge_limits[place], units_of[place], admitted[place]
    local taken, delay = 0, 0
    if passes and (room or modes[place] == SOFT) then
      delay = limit.algorithm.delay(slot, limit)
      taken = spend(slot, limit, units)
    end
    readings[place] = read(slot, limit, room, taken, delay, units)
  end
  return readings
end

-- Most claims only ask, each charge of a counter of its own.
local function plain(count)
  for place = 1, count do
    charge(place)
  end
  return vote_and_pay(count)
end

-- A claim that looked simple.
local function not_so_simple(shape, key, units, names)
  local count = shape.count
  for place = 1, count do
    local limit = shape[place]
    slots[place] = open(key, sub(names, 17 * place - 16, 17 * place - 1), limit)
    charge_limits[place], units_of[place], modes[place] = limit, units, shape.modes[place]
  end
  local readings = vote_and_pay(count)
  close()
  return table.concat(readings)
end

-- Claims whose charges meet: on one key, or because they give back, debit or lease as well as ask.
local function tangled(count)
  for place = 1, count do
    charge(place)
  end
  local taken, delays = {}, {}
  for place = 1, count do
    admitted[place], taken[place], delays[place] = true, 0, 0
  end
  -- The first charge that is one with this one: same key, same ask, same mode.
  local firsts = {}
  for place = 1, count do
    firsts[place] = place
    for other = 1, place - 1 do
      if slots[other] == slots[place] and asks[other] == asks[place] and modes[other] == modes[place]
        and (asks[place] ~= RETURN or taken_ats[other] == taken_ats[place]) then
        firsts[place] = other
        break
      end
    end
  end
  -- What there must be room for: see the core.
  local function needed(place)
    local limit, units = charge_limits[place], units_of[place]
    local is_hold, this = limit.kind == HOLDS, firsts[place]
    for other = 1, count do
      if other ~= place and slots[other] == slots[place] and asks[other] == EXACTLY then
        local first = firsts[other]
        local pays = admitted[first] or modes[other] == SOFT
        if first == this or (first < this and pays and not is_hold) then
          units = units + units_of[other]
        end
      end
    end
    return is_hold and min(units, 1) or units
  end

  for place = 1, count do -- give_back
    if asks[place] == RETURN and firsts[place] == place then
      local slot, limit, units = slots[place], charge_limits[place], 0
      for other = place, count do
        if firsts[other] == place then
          units = units + units_of[other]
        end
      end
      local back = limit.algorithm.give_back(slot, limit, min(units, EXACT - 1), floor(taken_ats[place] / limit.tick), ids)
      if back > 0 then
        slot.changed = true
      end
      for other = place, count do
        if firsts[other] == place then
          taken[other] = min(back, units_of[other])
          back = back - taken[other]
        end
      end
    end
  end
  for place = 1, count do -- debit
    if asks[place] == REGARDLESS then
      taken[place] = spend(slots[place], charge_limits[place], units_of[place])
    end
  end
  local refused, any_of = false, nil
  for place = 1, count do -- vote
    if asks[place] == EXACTLY then
      local room = admits(slots[place], charge_limits[place], needed(place))
      admitted[place] = room
      if modes[place] == ENFORCE then
        refused = refused or not room
      elseif modes[place] == ANY_OF then
        any_of = any_of or room
      end
    end
  end
  if not refused and any_of ~= false then
    for place = 1, count do -- pay
      if asks[place] == EXACTLY and (admitted[place] or modes[place] == SOFT) then
        local slot, limit = slots[place], charge_limits[place]
        delays[place] = limit.algorithm.delay(slot, limit)
        taken[place] = spend(slot, limit, units_of[place])
      end
    end
    for place = 1, count do -- lease
      if asks[place] == UP_TO then
        local slot, limit = slots[place], charge_limits[place]
        local left = limit.algorithm.available(slot, limit) or 0
        taken[place] = spend(slot, limit, min(units_of[place], left))
      end
    end
  end
  local readings = {}
  for place = 1, count do
    readings[place] =
      read(slots[place], charge_limits[place], admitted[place], taken[place], delays[place], needed(place))
  end
  return readings
end

---------------------------------------------------------------------------------------------------------------------------------
-- Claims that are settled once
--
-- A record: version, whether the verdict is in it, a digest of what was asked, when it was made, until when it holds, the answer.
---------------------------------------------------------------------------------------------------------------------------------

local FIRST, AGAIN, CONFLICT, UNDER_WAY, BEFORE = 0, 1, 2, 3, 4
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
  key, after = KEYS[key], at + after
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

---------------------------------------------------------------------------------------------------------------------------------
-- All claims, then all writes
---------------------------------------------------------------------------------------------------------------------------------

local answers, answer_count, heads = {}, 0, {}
local function answer(status, said)
  local length = #said
  local head = heads[length * 8 + status]
  if not head then
    head = pack('<I4B', length, status)
    heads[length * 8 + status] = head
  end
  answers[answer_count + 1], answers[answer_count + 2] = head, said
  answer_count = answer_count + 2
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

local SIMPLE = 8 -- a flag
for _ = 1, claim_count do
  local flags, which = unpack('<BI2', body, at)
  if flags == SIMPLE then
    local key, units, names
    flags, which, key, units, at = unpack('<BI2I2I7', body, at)
    local shape = shapes[which]
    names = shape.names
    if not names then
      names, at = unpack(shape.names_format, body, at)
    end
    local before = simple(shape, KEYS[key], units, names)
    if before then
      answer(BEFORE, before)
    else
      answer(FIRST, not_so_simple(shape, KEYS[key], units, names))
    end
  else
    at = at + 3
    answer(settle(flags, which))
  end
end

-- Values live a little longer than they matter. A clock that was set by hand says nothing of Redis's.
local spans = {}
for key, till in pairs(untils) do
  if is_clock_set then
    call('SET', key, values[key])
  else
    local seconds = max(till - second + GRACE, 1)
    local span = spans[seconds]
    if not span then
      span = tostring(seconds)
      spans[seconds] = span
    end
    call('SET', key, values[key], 'EX', span)
  end
end
return pack('<I8I2', now, min(unsound, 65535)) .. table.concat(answers)
