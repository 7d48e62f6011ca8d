-- The states of the current claim.

local MAKERS = { bucket, fixed_window, sliding_window, sliding_window, sliding_log, concurrency }
local created = {}

local function algorithm_of(kind)
  local algorithm = created[kind]
  if not algorithm then
    algorithm = MAKERS[kind]()
    created[kind] = algorithm
  end
  return algorithm
end

local ENTRY = 43 -- maximum bytes of a counter in a packed value
local ANNOUNCED = 86400 -- seconds for which own values are announced at least

local opened, opened_values = {}, {} -- of this claim: slots in their order and by key and id, values by key
local lacks_keys = false -- this claim needs values whose keys are not declared
-- This claim is on one counter, and its slot is being moved: the packed value and the counter's own value may be on
-- two nodes, so there is one call for each.
local is_apart = false

local numbers -- of KEYS, by name
-- The number of the key of a counter's own value, if it is declared.
local function own_key(key, id)
  if not numbers then
    numbers = {}
    for number, name in ipairs(KEYS) do
      numbers[name] = number
    end
  end
  return numbers[KEYS[key] .. id]
end

-- Parses a packed value.
local function packed(key)
  local raw = values[key]
  local value = { key = key, raw = raw, first = 8, entries = 0, spilled = 0, added = 0 }
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

-- The position of the state of this name in a packed value, if it is there.
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

local announce -- defined below
local function lend_packed(key, id, limit)
  local value = opened_values[key]
  if not value then
    value = packed(key)
    opened_values[key] = value
  end
  local place, kind = place_of(value, id)
  local home = value
  if not place then
    value.added = value.added + 1
    local is_spilled = value.spilled > second
    if is_spilled or #value.raw + ENTRY * value.added > PACKED then
      local number = own_key(key, id)
      if not number then
        lacks_keys = true
        if is_apart then
          announce(value, limit)
        end
      elseif is_spilled then
        home = opened_values[number] or packed(number)
        home.packed, opened_values[number] = value, home
        place, kind = place_of(home, id)
      end
    end
  end
  local slot = { id = id, limit = limit, home = home, is_there = place ~= nil, changed = false }
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
  local slot, raw, algorithm = { key = key, limit = limit, changed = false }, values[key], limit.algorithm
  if not raw then
    if algorithm.load_part(slot) then
      slot.is_there = true
      return slot
    end
    raw = read_value(key)
  end
  if raw ~= '' then
    slot.is_there = true
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

-- Lends the slot of a charge and advances it to now.
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

-- Rewrites a packed value: the unchanged entries that are not stale, then the changed ones.
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
      if not slot.is_gone then
        add(id .. char(slot.limit.kind), slot.state, slot.stale)
      end
      changed[id] = nil
    elseif stale + GRACE > second then
      add(sub(raw, entry, entry + 16), sub(raw, place, place + length - 1), stale)
    end
    place = place + length
  end
  local spills = value.spilled
  for _, slot in ipairs(changed) do
    if changed[slot.id] and not slot.is_gone then
      local name = slot.id .. char(slot.limit.kind)
      -- There is room for it if its own value's key is not declared, except in a value that was corrupted.
      local own = size + ENTRY > PACKED and own_key(value.key, slot.id)
      if own then
        put(own, pack('<BI5B', VERSION, slot.stale, 1) .. name .. slot.state, slot.stale)
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
  elseif #names == 0 then
    put(value.key, '', 0)
    return
  else
    head = pack('<BI5B', VERSION, till, #names)
  end
  put(value.key, head .. table.concat(names) .. table.concat(states), till)
end

-- Says in a packed value that a counter may have its own value from now on. How long that one will exist is not known
-- here, so this is generous.
announce = function(value, limit)
  local seconds = (2 * limit.period + limit.full / max(limit.amount, 1)) / limit.per_second
  local till = min(second + max(ceil(seconds), ANNOUNCED), LATEST)
  if value.spilled < till then
    value.spilled = min(till + ANNOUNCED, LATEST)
    repack(value, {})
  end
end

-- Drops the slots of the current claim.
local function abandon()
  opened, opened_values, lacks_keys, is_apart = {}, {}, false, false
end

-- Takes back the slots of the current claim.
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
        -- A packed value must know how long the counters that spilled from it exist.
        local from = home.packed
        if from and not slot.is_gone and slot.stale > from.spilled then
          from.spilled = slot.stale + SPILL_SLACK
          changes[from] = changes[from] or {}
        end
      else
        put(slot.key, slot.is_gone and '' or slot.limit.algorithm.store(slot, slot.limit), slot.stale)
      end
    end
  end
  for value, changed in pairs(changes) do
    repack(value, changed)
  end
  abandon()
end
