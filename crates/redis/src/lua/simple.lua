-- Simple claims: the same units of a few buckets and plain windows, in one value or in several.

-- What simple claims on a value have in common: limits, modes, and the encoding of the value.
local shapes = {}
for place = 1, shape_count do
  local count, has_own_names
  count, has_own_names, at = unpack('<BB', body, at)
  local shape = { count = count, size = 0, modes = {}, offsets = {} }
  local states, offset = '', 5
  for charge = 1, count do
    local which, mode
    which, mode, at = unpack('<I2B', body, at)
    local limit = limits[which]
    local kind = limit.kind
    shape[charge], shape.modes[charge], shape.offsets[charge] = limit, mode, offset
    shape.has_any_of = shape.has_any_of or mode == ANY_OF
    states = states .. sub(STATES[kind], 2)
    shape.size = shape.size + LENGTHS[kind]
    offset = offset + 1 + NUMBERS[kind]
    if kind ~= BUCKET and not limit.start then
      limit.start, limit.after = around(limit, limit.now)
      local _, after_next = around(limit, limit.after)
      limit.stale = in_seconds(limit, kind == FIXED and limit.after or after_next)
      limit.before = around(limit, limit.start - 1)
      limit.left, limit.whole = limit.after - limit.now, limit.after - limit.start
    end
  end
  shape.states, shape.last = '<' .. states, offset - 1
  shape.whole, shape.length = '<BI5Bc' .. 17 * count .. states, 7 + 17 * count + shape.size
  shape.names_format = '<c' .. 17 * count
  if has_own_names == 0 then
    shape.names, at = unpack(shape.names_format, body, at)
  end
  shapes[place] = shape
end

-- The position of the states of these names in a value with further counters. Nil unless the names are consecutive
-- and in this order.
local function run_of(raw, names, count)
  local entries = byte(raw, 7)
  if byte(raw) ~= VERSION or not entries then
    return nil
  end
  local found = find(raw, names, 8, true)
  if not found or (found - 8) % 17 ~= 0 or found + 17 * count > 8 + 17 * entries then
    return nil
  end
  local length, from = 7 + 17 * entries, nil
  for name = 8, 17 * entries, 17 do
    if name == found then
      from = length + 1
    end
    length = length + (LENGTHS[byte(raw, name + 16)] or #raw)
  end
  return length == #raw and from or nil
end

-- Writes a value of which some states have changed.
local function splice(shape, key, raw, from, state, till)
  local head, states = sub(raw, 1, 6), pack(shape.states, spread(state, 5, shape.last))
  if till > unpack('<I5', raw, 2) then
    till = with_slack(till)
    head = pack('<BI5', VERSION, till)
  else
    till = nil
  end
  put(key, head .. sub(raw, 7, from - 1) .. states .. sub(raw, from + shape.size), till)
end

-- The states of a shape's counters: a list whose elements from 5 on are those of `shape.offsets`. Also returns their
-- position in a value with further counters. Nil if the value is not that simple.
local function states_in(shape, raw, names)
  local count = shape.count
  if #raw == shape.length then
    -- These counters and no others.
    local state = { unpack(shape.whole, raw) }
    if state[4] ~= names or state[1] ~= VERSION or state[3] ~= count then
      return nil
    end
    return state
  elseif raw == '' then
    local state = { VERSION, 0, count, names }
    for place = 5, shape.last do
      state[place] = 0
    end
    return state
  end
  local from = run_of(raw, names, count)
  if not from then
    return nil
  end
  return { 0, 0, 0, 0, unpack(shape.states, raw, from) }, from
end

-- Advances each counter to now and checks for room. Returns whether all enforced counters have room, whether one of
-- mode any-of has room, and whether all will pay. Nil if the claim is not simple. Every request runs this loop and
-- the next, so they call no functions: `x - x % 1` is floor(x).
local function check_room(shape, state, units)
  local offsets, modes = shape.offsets, shape.modes
  local passes, any_has_room, all_pay, has_any_of = true, false, true, shape.has_any_of
  for place = 1, shape.count do
    local limit, offset = shape[place], offsets[place]
    local kind, one, two, room = limit.kind, state[offset + 1], state[offset + 2], nil
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
      room = units * limit.period <= limit.full - one
    else
      local start = limit.start
      if one > start or two >= EXACT then
        return nil
      elseif kind == FIXED then
        if one < start then
          state[offset + 1], state[offset + 2], two = start, 0, 0
        end
        room = units <= limit.amount - two
      else
        local three = state[offset + 3]
        if three >= EXACT then
          return nil
        elseif one < start then
          two, three = one == limit.before and three or 0, 0
          state[offset + 1], state[offset + 2], state[offset + 3] = start, two, three
        end
        local carried = two * limit.left / limit.whole
        room = units <= limit.amount - three - (carried - carried % 1)
      end
    end
    if room then
      if has_any_of and modes[place] == ANY_OF then
        any_has_room = true
      end
    else
      passes = passes and modes[place] ~= ENFORCE
      all_pay = all_pay and modes[place] == SOFT
    end
  end
  return passes, any_has_room, all_pay
end

-- Takes the units of each counter and writes the value. Each entry has the second from which it is stale.
local function take(shape, key, raw, state, from, units)
  local offsets, till = shape.offsets, 0
  for place = 1, shape.count do
    local limit, offset = shape[place], offsets[place]
    local max_count, kind, stale, taken = limit.max_count, limit.kind, limit.stale, units
    if taken > max_count then
      taken = max_count
    end
    if kind == BUCKET then
      local level, amount = state[offset + 1] + taken * limit.period, limit.amount
      if level >= EXACT then
        level = EXACT - 1
      end
      state[offset + 1] = level
      -- A few ticks late, which is harmless.
      stale = (limit.now + level / amount) / limit.per_second + 1
      stale = stale - stale % 1
      if stale > LATEST then
        stale = LATEST
      end
    else
      local counter = offset + kind -- the second number of a fixed window, the third of a sliding one
      local counted = state[counter] + taken
      state[counter] = counted < max_count and counted or max_count
    end
    state[offset] = stale
    if stale > till then
      till = stale
    end
  end
  if from then
    splice(shape, key, raw, from, state, till)
    return
  end
  if till > state[2] then
    till = with_slack(till)
    state[2] = till
  else
    till = nil
  end
  put(key, pack(shape.whole, spread(state, 1, shape.last)), till)
end

-- Settles a claim for the same units of each counter in a value. Returns the previous value or, among others, the
-- previous states. Nil if the claim is not as simple as it looked; then nothing has changed.
local function simple(shape, key, units, names)
  local raw = values[key]
  local state, from = states_in(shape, raw, names)
  if not state then
    return nil
  end
  local passes, any_has_room, all_pay = check_room(shape, state, units)
  if passes == nil then
    return nil
  end
  passes = passes and (any_has_room or not shape.has_any_of)
  if passes and not all_pay and units > 0 then
    -- The state of a counter that does not pay must not change.
    return nil
  end
  if passes and units > 0 then
    take(shape, key, raw, state, from, units)
  end
  if from then
    return sub(raw, from, from + shape.size - 1), STATES_BEFORE
  end
  return raw, BEFORE
end

-- The same for counters in several values. `groups` has a shape, a key and names for each.
local function several(groups, units)
  local all_pass, any_has_room, all_pay, has_any_of = true, false, true, false
  for _, group in ipairs(groups) do
    group.raw = values[group.key]
    group.state, group.from = states_in(group.shape, group.raw, group.names)
    if not group.state then
      return nil
    end
    local passes, has_room, pay = check_room(group.shape, group.state, units)
    if passes == nil then
      return nil
    end
    all_pass, any_has_room, all_pay = all_pass and passes, any_has_room or has_room, all_pay and pay
    has_any_of = has_any_of or group.shape.has_any_of
  end
  local passes = all_pass and (any_has_room or not has_any_of)
  if passes and not all_pay and units > 0 then
    return nil
  end
  local before = {}
  for place, group in ipairs(groups) do
    local shape, from = group.shape, group.from
    local previous = from and sub(group.raw, from, from + shape.size - 1) or group.raw
    before[place] = pack('<BBI2', from and STATES_BEFORE or BEFORE, shape.count, #previous) .. previous
    if passes and units > 0 then
      take(shape, group.key, group.raw, group.state, from, units)
    end
  end
  return table.concat(before), SEVERAL_BEFORE
end
