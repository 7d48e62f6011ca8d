-- Settles all claims, then writes all values.

local answers, answer_count, heads = {}, 0, {}
local function answer(status, readings)
  local length = #readings
  local head = heads[length * 8 + status]
  if not head then
    head = pack('<I4B', length, status)
    heads[length * 8 + status] = head
  end
  answers[answer_count + 1], answers[answer_count + 2] = head, readings
  answer_count = answer_count + 2
end

local SIMPLE, SEVERAL = 8, 16 -- flags
local settle, settle_groups

-- The names of a shape's counters, if they are part of the claim.
local function names_of(shape)
  local names
  names, at = unpack(shape.names_format, body, at)
  return names
end

-- The groups of a claim on several values.
local function read_groups(count)
  local groups = {}
  for place = 1, count do
    local which, key
    which, key, at = unpack('<I2I2', body, at)
    groups[place] = { shape = shapes[which], key = key, names = shapes[which].names or names_of(shapes[which]) }
  end
  return groups
end

local function make_general()
  if not settle then
    settle, settle_groups = general()
  end
end

for _ = 1, claim_count do
  -- Reads the claim as if it were simple; the padding after the claims is long enough for that.
  local flags, which, key, units, after = unpack('<BI2I2I7', body, at)
  local before, status
  if flags == SIMPLE then
    at = after
    local shape = shapes[which]
    local names = shape.names or names_of(shape)
    before, status = simple(shape, key, units, names)
    if not before then
      make_general()
      status, before = settle_groups({ { shape = shape, key = key, names = names } }, units)
    end
  elseif flags == SEVERAL then
    at = after
    local groups = read_groups(which)
    before, status = several(groups, units)
    if not before then
      make_general()
      status, before = settle_groups(groups, units)
    end
  else
    make_general()
    at = at + 3
    status, before = settle(flags, which)
  end
  answer(status, before)
end

-- Values live a little longer than necessary. A clock that is set by hand does not determine Redis's expiry.
local spans = {}
for key, till in pairs(untils) do
  local name = KEYS[key]
  if values[key] == '' then
    -- The value is empty. Removing it would require a permission that nothing else needs.
    call('SET', name, '', 'PX', 1)
  elseif is_clock_set then
    call('SET', name, values[key])
  elseif not till then
    call('SET', name, values[key], 'KEEPTTL')
  else
    local seconds = max(till - second + GRACE, 1)
    local span = spans[seconds]
    if not span then
      span = tostring(seconds)
      spans[seconds] = span
    end
    call('SET', name, values[key], 'EX', span)
  end
end
return pack('<I8I2', now, min(unsound, 65535)) .. table.concat(answers)
