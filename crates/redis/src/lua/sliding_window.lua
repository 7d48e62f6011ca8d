-- Sliding window. In one part (two counts, packed with others) or in several (its own value). The counts are slot[0]
-- to slot[parts].
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
      local tick, moved = effective_time(slot.start, limit.now, limit.period)
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
    used = function(slot, limit)
      local start, after = part(limit, slot.now)
      local carried = floor(slot[0] * (after - slot.now) / (after - start))
      return carried + sum(slot, 1, limit.parts)
    end,
    spend = function(slot, limit, units)
      units = min(units, limit.max_count)
      slot[limit.parts] = min(slot[limit.parts] + units, limit.max_count)
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
    credit = function(slot, limit, units)
      local left = units
      for place = limit.parts, 1, -1 do
        local back = min(left, slot[place])
        slot[place], left = slot[place] - back, left - back
      end
      local start, after = part(limit, slot.now)
      local length, remains = after - start, after - slot.now
      local carried = floor(slot[0] * remains / length)
      local back = min(left, carried)
      if back > 0 then
        slot[0] = min(slot[0], ceil((carried - back + 1) * length / remains) - 1)
      end
      return units - (left - back)
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
