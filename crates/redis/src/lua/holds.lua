-- Concurrency. Has its own value: the tick of the last change, then expiry and claim id of each hold, soonest expiry
-- first. `raw` is the holds alone.
local function concurrency()
  local SIZE = 23
  local function expires(slot, place) -- from 0
    return (unpack('<I7', slot.raw, place * SIZE + 1))
  end
  local function count(slot)
    return #slot.raw / SIZE
  end
  -- The index of the first hold that expires after `tick`.
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
  -- The position of the claim's live hold in `raw`, if it has one.
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
      local tick, moved = effective_time(slot.at, limit.now, limit.period)
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
    used = function(slot)
      return count(slot) - slot.expired
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
    credit = function()
      return 0
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
