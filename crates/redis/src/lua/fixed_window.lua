-- Fixed window.

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
      local tick, moved = effective_time(slot.start, limit.now, limit.period)
      local start = around(limit, tick)
      if start ~= slot.start and not moved then
        slot.used = 0
      end
      slot.start = start
      return tick, moved
    end,
    used = function(slot)
      return slot.used
    end,
    spend = function(slot, limit, units)
      units = min(units, limit.max_count)
      slot.used = min(slot.used + units, limit.max_count)
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
    credit = function(slot, _, units)
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
