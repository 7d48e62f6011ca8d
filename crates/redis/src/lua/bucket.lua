-- Token bucket, GCRA and leaky bucket.

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
      local tick, moved = effective_time(slot.at, limit.now, limit.period)
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
    used = function(slot, limit)
      return ceil(slot.level / limit.period)
    end,
    spend = function(slot, limit, units)
      units = min(units, limit.max_count)
      if units > 0 then
        slot.level = min(slot.level + units * limit.period, EXACT - 1)
        slot.at = slot.now
      end
      return units
    end,
    give_back = function(slot, limit, units, taken_at)
      local taken = min(units, limit.max_count) * limit.period
      local remaining = taken - min(drained(limit, max(slot.now - taken_at, 0), taken), taken)
      local back = min(remaining, slot.level)
      slot.level = slot.level - back
      return ceil(back / limit.period)
    end,
    credit = function(slot, limit, units)
      local back = min(min(units, limit.max_count) * limit.period, slot.level)
      slot.level = slot.level - back
      return ceil(back / limit.period)
    end,
    -- Ticks are relative to the limit's `now`, which keeps them exact however far ahead they are.
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
