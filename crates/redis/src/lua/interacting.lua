-- Settles claims whose charges interact: several charges with one key, or charges that reset, give back, credit,
-- debit or lease. Nil if the claim lacks keys.
local function settle_interacting(count)
  for place = 1, count do
    charge(place)
  end
  if lacks_keys then
    return nil
  end
  local taken, delays = {}, {}
  for place = 1, count do
    admitted[place], taken[place], delays[place] = true, 0, 0
  end
  -- The first charge with the same key, ask and mode. Such charges act as one.
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
  -- The units that there must be room for: see the core.
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

  local resets = false
  for place = 1, count do -- reset
    if asks[place] == RESET then
      taken[place], resets = reset(slots[place], charge_limits[place]), true
    end
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
  for place = 1, count do -- credit
    if asks[place] == CREDIT then
      local slot, limit = slots[place], charge_limits[place]
      taken[place] = limit.algorithm.credit(slot, limit, units_of[place])
      slot.changed = slot.changed or taken[place] > 0
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
        local left = available(slot, limit) or 0
        taken[place] = spend(slot, limit, min(units_of[place], left))
      end
    end
  end
  local readings = {}
  for place = 1, count do
    readings[place] =
      read(slots[place], charge_limits[place], admitted[place], taken[place], delays[place], needed(place))
  end
  for place = 1, resets and count or 0 do -- drop_if_unused
    local slot, limit = slots[place], charge_limits[place]
    if asks[place] == RESET and limit.algorithm.used(slot, limit) == 0 then
      slot.is_gone, slot.changed = true, slot.is_there
    end
  end
  return readings
end
