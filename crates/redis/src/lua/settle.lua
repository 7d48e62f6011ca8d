-- Settles a claim.

local ids = nil -- the id of the current claim

-- Nil while the counter is past its limit.
local function available(slot, limit)
  local room = limit.quota - limit.algorithm.used(slot, limit)
  return room >= 0 and room or nil
end

local function has_room(slot, limit, units)
  local left = available(slot, limit)
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

-- Clears the counter and returns how many units it counted.
local function reset(slot, limit)
  local cleared = limit.algorithm.used(slot, limit)
  limit.algorithm.fresh(slot, limit)
  slot.now = limit.algorithm.advance(slot, limit)
  slot.changed = true
  return cleared
end

-- The status of a reading: it admits, or there is room soon, or from some tick on, or never.
local ADMITS, SOON, LATER, NEVER = 1, 0, 2, 4

-- The earliest tick with room: the status, and the ticks from the limit's now on.
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

-- A reading: status, taken, remaining, wait, reset, delay.
local function read(slot, limit, admitted, taken, delay, needed)
  local status, waits = ADMITS, 0
  if not admitted then
    status, waits = wait(slot, limit, needed)
  end
  local algorithm = limit.algorithm
  local left = available(slot, limit) or 0
  local reset_after = algorithm.reset(slot, limit)
  -- Sums of corrupted values may be too large.
  local max_units = EXACT - 1
  return pack('<BI7I7I7I7I7', status, min(taken, max_units), min(left, max_units), waits, max(reset_after, 0), delay)
end

-- The charges of the current claim, in order.
local slots, charge_limits, units_of, modes, asks, taken_ats, admitted = {}, {}, {}, {}, {}, {}, {}

local function charge(place)
  local key, which, operation, units, id
  key, which, operation, units, id, at = unpack('<I2I2BI7c16', body, at)
  local limit = limits[which]
  local mode = operation % 4
  charge_limits[place], units_of[place], modes[place] = limit, units, mode
  slots[place] = open(key, id, limit)
  asks[place] = (operation - mode) / 4
  if asks[place] == RETURN then
    taken_ats[place], at = unpack('<I7', body, at) -- in microseconds
  end
end

-- Settles charges that only ask, with distinct counters.
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

-- Settles a claim of independent charges, as most claims are. Nil if it lacks keys.
local function settle_independent(count)
  for place = 1, count do
    charge(place)
  end
  if lacks_keys then
    return nil
  end
  return vote_and_pay(count)
end

-- Settles a claim that looked simple. Returns its status and readings.
local function settle_groups(groups, units)
  local count = 0
  for _, group in ipairs(groups) do
    for place, limit in ipairs(group.shape) do
      count = count + 1
      slots[count] = open(group.key, sub(group.names, 17 * place - 16, 17 * place - 1), limit)
      charge_limits[count], units_of[count], modes[count] = limit, units, group.shape.modes[place]
    end
  end
  if lacks_keys then
    abandon()
    return LACKS_KEYS, ''
  end
  local readings = vote_and_pay(count)
  close()
  return FIRST, table.concat(readings)
end
