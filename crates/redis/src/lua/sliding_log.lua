-- Sliding log. Has its own value: the total, then tick and units of each entry, oldest first. `raw` is the entries
-- alone. Of a long log only the parts are read that a claim needs, which for one that takes nothing are few: `raw` is
-- then nil, and `part` has what was read.
local logs = {} -- by key: the parts of logs that were read, false if a log is read as a whole
local function sliding_log()
  local SIZE, HEAD = 14, 8
  local PART = 64 -- entries that are read at once
  local SHORT = 4096 -- bytes; shorter logs are read as a whole
  local WALKED = 128 -- entries that a wait looks at: MAX_WALKED of the core
  local MAX_OVER = 64 -- expired entries that are not removed, because nothing else changes
  local function entry(slot, place) -- from 0
    local raw = slot.raw
    if not raw then
      local part, number = slot.part, floor(place / PART)
      raw = part[number]
      if not raw then
        local from = HEAD + number * PART * SIZE
        raw = call('GETRANGE', KEYS[slot.key], from, from + PART * SIZE - 1)
        part[number] = raw
      end
      place = place % PART
    end
    local tick, units = unpack('<I7I7', raw, place * SIZE + 1)
    return tick, units
  end
  local function count(slot)
    return slot.raw and #slot.raw / SIZE or slot.part.count
  end
  local function read_whole(slot)
    if not slot.raw then
      slot.raw, logs[slot.key] = sub(read_value(slot.key), HEAD + 1), false
    end
  end
  local function drop_over(slot)
    read_whole(slot)
    slot.raw = sub(slot.raw, slot.over * SIZE + 1)
    slot.total = slot.total - slot.over_units
    slot.over, slot.over_units = 0, 0
  end
  -- What is known of a long log without reading all of it. Nil if the log is short, or if this user may not read parts
  -- of values.
  local function part_of(key)
    local length = pcall('STRLEN', KEYS[key])
    if type(length) ~= 'number' or length < SHORT then
      return false
    end
    local head = pcall('GETRANGE', KEYS[key], 0, HEAD - 1)
    if type(head) ~= 'string' then
      return false
    end
    return { count = (length - HEAD) / SIZE, version = byte(head), total = unpack('<I7', head, 2) }
  end
  local function is_sound(slot)
    local entries = count(slot)
    if entries ~= floor(entries) or entries > ENTRIES or slot.total >= EXACT then
      return false
    end
    return entries == 0 or entry(slot, entries - 1) < EXACT
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
      slot.raw, slot.over, slot.over_units = sub(raw, HEAD + 1), 0, 0
      return is_sound(slot)
    end,
    load_part = function(slot)
      local part = logs[slot.key]
      if part == nil then
        part = part_of(slot.key)
        logs[slot.key] = part
      end
      if not part or part.version ~= VERSION then
        return false
      end
      slot.part, slot.total, slot.over, slot.over_units = part, part.total, 0, 0
      return is_sound(slot)
    end,
    store = function(slot)
      read_whole(slot)
      return pack('<BI7', VERSION, slot.total) .. slot.raw
    end,
    length = function()
      return 8
    end,
    advance = function(slot, limit)
      local newest = count(slot) > 0 and entry(slot, count(slot) - 1) or 0
      local tick, moved = effective_time(newest, limit.now, limit.period)
      if moved then
        read_whole(slot)
        local ahead, retained = 0, count(slot)
        while retained > 0 do
          local when, units = entry(slot, retained - 1)
          if when < tick then
            break
          end
          ahead, retained = ahead + units, retained - 1
        end
        slot.raw = sub(slot.raw, 1, retained * SIZE) .. pack('<I7I7', tick, ahead)
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
      elseif slot.over > MAX_OVER then
        -- Claims that take nothing would look at them again and again.
        drop_over(slot)
        moved = true
      end
      return tick, moved
    end,
    used = function(slot)
      return slot.total - slot.over_units
    end,
    spend = function(slot, limit, units)
      units = min(units, limit.max_count)
      if units > 0 then
        drop_over(slot)
      end
      local counted = min(units, limit.max_count - min(slot.total, limit.max_count))
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
      if taken_at + limit.period <= slot.now then
        return 0
      end
      local low, high = slot.over, count(slot)
      while low < high do
        local middle = floor((low + high) / 2)
        if entry(slot, middle) <= taken_at then
          low = middle + 1
        else
          high = middle
        end
      end
      -- The entries from `first` to `last` are used up; `rest` is what is left of the one before or after them.
      local first, last, left, rest = low, low, units, ''
      while left > 0 and first > slot.over do
        local when, there = entry(slot, first - 1)
        first = first - 1
        if there > left then
          there, rest = left, pack('<I7I7', when, there - left)
        end
        left = left - there
      end
      while left > 0 and last < count(slot) do
        local when, there = entry(slot, last)
        last = last + 1
        if there > left then
          there, rest = left, pack('<I7I7', when, there - left)
        end
        left = left - there
      end
      local back = units - left
      if back > 0 then
        read_whole(slot)
        slot.raw = sub(slot.raw, 1, first * SIZE) .. rest .. sub(slot.raw, last * SIZE + 1)
        slot.total = max(slot.total - back, slot.over_units)
        drop_over(slot)
      end
      return back
    end,
    credit = function(slot, _, units)
      local back = min(units, slot.total - slot.over_units)
      if back > 0 then
        drop_over(slot)
      end
      local left, retained, rest = back, count(slot), ''
      while left > 0 and retained > 0 do
        local when, there = entry(slot, retained - 1)
        if there > left then
          there, rest = left, pack('<I7I7', when, there - left)
        end
        left, retained = left - there, retained - 1
      end
      if back > 0 then
        slot.raw, slot.total = sub(slot.raw, 1, retained * SIZE) .. rest, slot.total - back
      end
      return back
    end,
    wait = function(slot, limit, units)
      local room = limit.amount - units
      local left = slot.total - slot.over_units
      local last = count(slot) - 1
      for place = slot.over, last do
        if place - slot.over == WALKED then
          -- Every entry has at least a unit.
          return (entry(slot, min(place + left - room - 1, last))) + limit.period - limit.now
        end
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
