-- Sliding log. Has its own value: the total, then tick and units of each entry, oldest first. `raw` is the entries
-- alone.
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
      local tick, moved = effective_time(newest, limit.now, limit.period)
      if moved then
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
